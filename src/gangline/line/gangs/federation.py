"""The carrier of a federated run: a process of the driver beside the gang, whose rank asks members through it."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from gangline.errors import ConfigError, NotInstalledError
from gangline.federated.mailbox import MAILBOX
from gangline.launch.local.folder import GangFolder
from gangline.launch.protocol import Gang
from gangline.line.gangs.launchers import gangs_root
from gangline.line.record.context import RunContext
from gangline.signing.keys import signing_key
from gangline.spec.config.secrets import parse_reference
from gangline.spec.run_flags import stage
from gangline.storage.objects.blobs import get_blob

_ENDING_SECONDS = 30.0
_SHARE_OF_WAITING = 0.9
"""Of the time that a run may take, for members to accept: the gang's own end is later, and says less."""
VERSION = "2.9."
"""Beginning of the versions of NVFlare that are used."""


@contextmanager
def carried(ctx: RunContext) -> Iterator[Callable[[Gang], None]]:
    """Start the coordinator for a gang that has begun, each time it is called; it ends with the block.

    Raises:
        ConfigError: The site's kits are wrong, or its gangs do not run on this machine.
        NotInstalledError: NVFlare is missing, or another version.
    """
    federation = ctx.plan.federation
    if federation is None or federation.simulated:
        yield lambda _: None
        return
    if ctx.record.run.target != "local":
        raise ConfigError(
            f"launch.target: wanted local, for a federation is coordinated from this machine, found"
            f" {ctx.record.run.target}; leave federation.kit out to simulate its members"
        )
    _require_nvflare()
    with ExitStack() as stack:

        def start(gang: Gang) -> None:
            stack.close()
            stack.enter_context(_coordinator(ctx, GangFolder(gangs_root(ctx.repo) / gang.name)))

        yield start


@contextmanager
def _coordinator(ctx: RunContext, folder: GangFolder) -> Iterator[None]:
    from gangline.flare import coordinator  # few runs have a federation

    site, federation = ctx.site.federation, ctx.plan.federation
    assert site.kit is not None, "the plan has members of the site"
    assert site.admin is not None, "the rules of the site"
    assert federation is not None, "a federated plan"
    own, code = folder.home / "coordinator", str(stage(ctx.record, "build").outputs["code"])
    found = coordinator.Coordination(
        kit=str(Path(site.kit).expanduser()), admin=parse_reference(site.admin).name, roster=federation.roster,
        mailbox=str(folder.inside / MAILBOX), quorum=federation.table.quorum,
        wait_seconds=ctx.site.limits.run_seconds * _SHARE_OF_WAITING,
    )  # fmt: skip
    coordinator.prepare(own, found, ctx.plan, get_blob(ctx.store, code), signing_key(ctx.site, ctx.environ))
    with (own / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", coordinator.MODULE, str(own)], env=dict(ctx.environ), stdin=subprocess.DEVNULL,
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield
    finally:
        try:
            process.wait(_ENDING_SECONDS)
        except subprocess.TimeoutExpired:
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
