"""The carrier of a federated run: a process of the driver next to the gang, whose rank asks members through it."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
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
_MOST_STARTS = 5
_SHARE_OF_WAITING = 0.9
"""Share of a run's time in which members may accept: the gang's own end is later, and says less."""
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
    if not ctx.record.run.launcher.is_here:
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
    """The coordinator as a child of this driver, started again if it is killed: the gang's rank waits for it."""
    process = _start(module, folder, environ)
    ended, kept = threading.Event(), [process]

    def keep() -> None:
        for _ in range(_MOST_STARTS):
            if kept[-1].wait() == 0 or ended.is_set():
                return
            kept.append(_start(module, folder, environ))

    keeper = threading.Thread(target=keep, name="coordinator", daemon=True)
    keeper.start()
    try:
        yield
        keeper.join(_ENDING_SECONDS)  # longer only for a gang that ended without saying so
    finally:
        ended.set()
        while keeper.is_alive():
            kept[-1].terminate()
            keeper.join(1.0)


def _start(module: str, folder: Path, environ: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", module, str(folder)], env=dict(environ), stdin=subprocess.DEVNULL, stdout=log,
            stderr=log,
        )  # fmt: skip


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
