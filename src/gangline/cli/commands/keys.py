"""`gangline keys`: whose signatures count here."""

from gangline.cli.options import HERE, JsonOption, RepoOption, SiteOption
from gangline.cli.output import answer, columns
from gangline.cli.workspace import open_workspace
from gangline.signing.keys import list_keys


def command(*, repo: RepoOption = HERE, site: SiteOption = None, json: JsonOption = False) -> None:
    """List signing keys: which one signs here, and whose models may be promoted."""
    workspace = open_workspace(repo, site)
    keys = list_keys(workspace.site, workspace.environ)
    rows = [(k.key_id, "signs here" if k.own else "-", "trusted" if k.trusted else "-", str(k.place)) for k in keys]
    table = columns([("KEY", "SIGNS", "PROMOTES", "PLACE"), *rows])
    answer(keys, table if keys else "no key yet; the first run makes a local one, mode 0600", json=json)
