"""The workspace that a build of Jenkins works in: what must not lie there, and which one is the wrong one."""

import re
from collections.abc import Mapping
from pathlib import Path

from gangline.errors import ConfigError
from gangline.line import places
from gangline.spec.site import Site

_SECOND = re.compile(r"@[0-9]+")


def demand_workspace(repo: Path, site: Site, environ: Mapping[str, str]) -> None:
    """Jenkins names the workspace in WORKSPACE; without it there is nothing to say.

    Raises:
        ConfigError: The store lies in it, or it is a second one beside that of the branch, whose gangs nobody finds.
    """
    if not (name := environ.get("WORKSPACE")):
        return
    workspace = Path(name).resolve()
    if site.launch.target == "local" and _SECOND.search(workspace.name):
        raise ConfigError(
            f"wanted the one workspace of this branch, found {workspace.name}, made for a second build at"
            " the same time: gangs of this machine are found only where they were started; give the agent one executor,"
            " as jenkins/plain/agent.yaml does"
        )
    url = places.store_url(repo, site)
    if url.startswith("file:") and Path(url.removeprefix("file:")).is_relative_to(workspace):
        raise ConfigError(
            f"store.url: wanted a store that outlives the workspace, found {url} in {workspace}, which Jenkins"
            " discards; set store.url in site.toml to a folder elsewhere, as file:/srv/gangline/store, or to s3://BUCKET"
        )
