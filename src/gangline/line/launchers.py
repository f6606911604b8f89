"""The launcher that a site's target names, with the secrets it may resolve into a gang."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from gangline.errors import ConfigError
from gangline.launch.local import LocalLauncher
from gangline.launch.protocol import Launcher
from gangline.line import places
from gangline.spec.site import Site
from gangline.storage.protocol import ObjectStore
from gangline.storage.scoped import SHARED_INPUTS, scoped_credentials

CHECKPOINT_KEY = "checkpoint-key"
STORE_CREDENTIALS = "store-credentials"


def gangs_root(repo: Path) -> Path:
    """Folder of the gangs that run on this machine."""
    return places.home(repo) / "gangs"


def open_launcher(
    repo: Path,
    *,
    site: Site,
    environ: Mapping[str, str],
    store: ObjectStore,
    project: str = "",
    run_prefix: str = "",
    target: str | None = None,
) -> Launcher:
    """The launcher of `target`, or of the site; `project` and `run_prefix` are needed to submit, not to watch or stop.

    Raises:
        ConfigError: This installation has none for it.
    """
    wanted = target or site.launch.target
    if wanted != "local":
        raise ConfigError(
            f"launch.target: wanted {wanted!r}, found only local launching in this installation;"
            f" install gangline[{'kfp' if wanted.startswith('kfp') else wanted}] where it offers that, or use local"
        )
    lent = partial(gang_credentials, store, site, environ, project=project, run_prefix=run_prefix)
    return LocalLauncher(gangs_root(repo), store=store, secrets=secret_reader(site, environ, project, lent))


def secret_reader(
    site: Site, environ: Mapping[str, str], project: str, credentials: Callable[[], str]
) -> Callable[[str], bytes]:
    """Gives the values behind the names in `PodSet.secrets`."""

    def read(name: str) -> bytes:
        if name == CHECKPOINT_KEY:
            return checkpoint_key(site, environ, project)
        if name == STORE_CREDENTIALS:
            return credentials().encode()
        raise ConfigError(f"a gang asks for the secret {name!r}; there are {CHECKPOINT_KEY} and {STORE_CREDENTIALS}")

    return read


def checkpoint_key(site: Site, environ: Mapping[str, str], project: str) -> bytes:
    """What signs the checkpoints of `project`."""
    from gangline.line.registry.keys import signing_key

    return signing_key(site, environ).checkpoint_key(project)


def gang_credentials(
    store: ObjectStore, site: Site, environ: Mapping[str, str], *, project: str, run_prefix: str
) -> str:
    """A credential of this run for an hour, where the server lends one; else the site's own.

    It writes below `run_prefix`, and reads inputs, models and the project's other runs: a training may be taken.
    """
    own = places.store_credentials(site, environ) or ""
    if not (site.store.scoped and own and run_prefix):
        return own
    return scoped_credentials(store, run_prefix, read=(*SHARED_INPUTS, f"runs/{project}/")) or own
