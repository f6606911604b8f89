"""The carrier of a federated run: a process of the driver next to the gang, whose rank asks members through it."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gangline.errors import ConfigError, NotInstalledError
from gangline.launch.local.folder import GangFolder
from gangline.launch.protocol import Gang
from gangline.line.gangs.launchers import gangs_root
from gangline.line.record.context import RunContext
from gangline.signing.keys import signing_key
from gangline.spec.config.secrets import parse_reference
from gangline.spec.run_flags import stage
from gangline.storage.objects.blobs import get_blob

if TYPE_CHECKING:
    from gangline.flare.kit import Kit

Started = Callable[[Gang, int], object]
"""Called with a gang that has begun, and the restarts before it."""
_ENDING_SECONDS = 30.0
_SHARE_OF_WAITING = 0.9
"""Of the time that a run may take, for members to accept: the gang's own end is later, and says less."""
VERSION = "2.9."
"""Beginning of the versions of NVFlare that are used."""


@contextmanager
def carried(ctx: RunContext, started: Started) -> Iterator[Started]:
    """`started`, before which the coordinator for the gang starts that has begun; it ends with the block.

    Raises:
        ConfigError: The site's kits are wrong, or its gangs do not run on this machine.
        NotInstalledError: NVFlare is missing, or another version.
    """
    federation = ctx.plan.federation
    if federation is None or federation.simulated:
        yield started
        return
    if ctx.record.run.target != "local":
        raise ConfigError(
            f"launch.target: wanted local, for a federation is coordinated from this machine, found"
            f" {ctx.record.run.target}; leave federation.kit out to simulate its members"
        )
    from gangline.federated.mailbox import MAILBOX  # numpy: few runs have a federation
    from gangline.flare import coordinator

    kit, admin = _kits(ctx)
    layer = get_blob(ctx.store, str(stage(ctx.record, "build").outputs["code"]))
    key = signing_key(ctx.site, ctx.environ)
    with ExitStack() as stack:

        def start(gang: Gang, restarts: int) -> object:
            stack.close()
            folder = GangFolder(gangs_root(ctx.repo) / gang.name)
            found = coordinator.Coordination(
                kit=str(kit.folder), admin=str(admin.folder), mailbox=str(folder.inside / MAILBOX),
                roster=federation.roster, quorum=federation.table.quorum,
                wait_seconds=ctx.site.limits.run_seconds * _SHARE_OF_WAITING,
            )  # fmt: skip
            coordinator.prepare(folder.home / "coordinator", found, ctx.plan, layer, key)
            stack.enter_context(_process(coordinator.MODULE, folder.home / "coordinator", ctx.environ))
            return started(gang, restarts)

        yield start


def _kits(ctx: RunContext) -> "tuple[Kit, Kit]":
    """Kits of the server and of the admin, before anything starts."""
    from gangline.flare.kit import ADMIN, SERVER, open_kit

    site = ctx.site.federation
    assert site.kit is not None, "the plan has members of the site"
    assert site.admin is not None, "the rules of the site"
    _require_nvflare()
    kit = open_kit(Path(site.kit).expanduser(), SERVER)
    return kit, open_kit(Path(parse_reference(site.admin).name).expanduser(), ADMIN)


@contextmanager
def _process(module: str, folder: Path, environ: Mapping[str, str]) -> Iterator[None]:
    """The coordinator as a child of this driver."""
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(folder)], env=dict(environ), stdin=subprocess.DEVNULL,
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield
        with suppress(subprocess.TimeoutExpired):  # of a gang that ended before it said so
            process.wait(_ENDING_SECONDS)
    finally:
        process.terminate()
        process.wait()


def _require_nvflare() -> None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("nvflare")
    except PackageNotFoundError:
        found = "none"
    if not found.startswith(VERSION):
        raise NotInstalledError(
            f"federation.kit: wanted nvflare {VERSION}x, found {found}; pip install 'gangline[federated]'"
        )
