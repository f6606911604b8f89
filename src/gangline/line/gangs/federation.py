"""The carrier of a federated run next to the gang, whose rank asks members through it: a process of the driver, or on a
cluster a container of the gang's pod, for which the driver writes its orders into the store."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gangline.errors import ConfigError
from gangline.launch.local.folder import GangFolder
from gangline.launch.protocol import Gang
from gangline.line.gangs.launchers import gangs_root
from gangline.line.record.context import RunContext
from gangline.signing.keys import signing_key
from gangline.spec.config.secrets import is_reference, parse_reference
from gangline.spec.config.site import Site
from gangline.spec.gang.driver_orders import COORDINATOR_KEY, CoordinatorPod
from gangline.spec.launchers import LauncherTraits
from gangline.spec.plan import Plan
from gangline.spec.run_flags import stage
from gangline.storage.objects.blobs import get_blob

if TYPE_CHECKING:
    from gangline.flare.orders import CoordinatorOrders

Started = Callable[[Gang, int], object]
"""Called with a gang that has begun, and the restarts before it."""
_SHARE_OF_WAITING = 0.9
"""Share of a run's time in which members may accept: the gang's own end is later, and says less."""


@contextmanager
def carried(ctx: RunContext, started: Started) -> Iterator[Started]:
    """`started`, before which the coordinator for the gang starts that has begun; it ends with the block.

    Raises:
        ConfigError: The site's kits are wrong, or not where its gangs run.
        NotInstalledError: NVFlare is missing on this machine, or another version.
    """
    if not has_members(ctx.plan):
        yield started
        return
    launcher = ctx.record.run.launcher
    _require_place(ctx.site, launcher, target=ctx.record.run.target)
    if launcher.has_pods:
        orders, _ = _orders(ctx)
        ctx.store.put(orders_key(ctx.plan), orders.to_json())
        yield started
        return
    from gangline.federated.mailbox import MAILBOX  # numpy: few runs have a federation
    from gangline.flare.coordinator import MODULE
    from gangline.flare.kit import ADMIN, SERVER, open_kit
    from gangline.flare.orders import prepare
    from gangline.flare.server import require_nvflare
    from gangline.flare.supervisor import supervised

    table = ctx.site.federation
    assert table.kit is not None, "the plan has members of the site"
    assert table.admin is not None, "the rules of the site"
    require_nvflare("federation.kit")
    kit = open_kit(Path(table.kit).expanduser(), SERVER)
    admin = open_kit(Path(parse_reference(table.admin).name).expanduser(), ADMIN)
    orders, layer = _orders(ctx)
    with ExitStack() as stack:

        def start(gang: Gang, restarts: int) -> object:
            stack.close()
            gang_folder = GangFolder(gangs_root(ctx.repo) / gang.name)
            coordination = orders.at(kit=kit.folder, admin=admin.folder, mailbox=gang_folder.inside / MAILBOX)
            folder = gang_folder.home / "coordinator"
            prepare(folder, coordination, orders, layer)
            stack.enter_context(supervised(MODULE, folder, ctx.environ))
            return started(gang, restarts)

        yield start


def has_members(plan: Plan) -> bool:
    """Whether the gang of `plan` asks real members, so that a coordinator has to run next to it."""
    return plan.role == "train" and plan.federation is not None and not plan.federation.simulated


def orders_key(plan: Plan) -> str:
    """Key of a coordinator's orders in the store."""
    return f"{plan.output_prefix}/coordinator.json"


def coordinator_variables(plan: Plan, site: Site, launcher: LauncherTraits) -> dict[str, str]:
    """Variable of a gang of pods with its coordinator; empty where there is none in its pod."""
    if not (launcher.has_pods and has_members(plan)):
        return {}
    table = site.federation
    assert table.kit is not None, "the plan has members of the site"
    assert table.admin is not None, "the rules of the site"
    assert table.image is not None, "likewise"
    pod = CoordinatorPod(
        image=table.image, kit=parse_reference(table.kit).name, admin=parse_reference(table.admin).name,
        service=table.service, port=table.port, orders=orders_key(plan),
    )  # fmt: skip
    return {COORDINATOR_KEY: pod.to_json().decode()}


def _require_place(site: Site, launcher: LauncherTraits, *, target: str) -> None:
    """Raises ConfigError unless a coordinator can run where the gang does, and the kits are there."""
    kit = site.federation.kit
    assert kit is not None, "the plan has members of the site"
    if not (launcher.is_here or launcher.has_pods):
        raise ConfigError(
            f"launch.target: wanted local or kubernetes, where a coordinator of a federation runs, found {target};"
            " leave federation.kit out to simulate its members"
        )
    if launcher.has_pods and not is_reference(kit):
        raise ConfigError(
            f"federation.kit: wanted secret:k8s:NAME/KEY for launch.target {target}, for the coordinator runs in a pod"
            " there, found a folder of this machine; put archives of both kits into a Secret, or use --target local"
        )
    if launcher.is_here and is_reference(kit):
        raise ConfigError(
            f"federation.kit: wanted a folder for launch.target {target}, for the coordinator runs on this machine,"
            " found a Secret of a cluster; use --target kubernetes"
        )


def _orders(ctx: RunContext) -> "tuple[CoordinatorOrders, bytes]":
    """Orders of the run's coordinator, and the code that they offer."""
    from gangline.flare.orders import make_orders

    layer = get_blob(ctx.store, str(stage(ctx.record, "build").outputs["code"]))
    seconds = ctx.site.limits.run_seconds * _SHARE_OF_WAITING
    return make_orders(ctx.plan, layer, signing_key(ctx.site, ctx.environ), wait_seconds=seconds), layer
