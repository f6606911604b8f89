"""Servers of a gang in its record: whether its nodes are where they were placed, and its tiles in one group each."""

from gangline.errors import GanglineError
from gangline.fabric.placement.order import verify
from gangline.fabric.probe.measured_links import LinkMeasurement, with_speeds
from gangline.fabric.traffic.rings import rank_table
from gangline.launch.protocol import GangStatus
from gangline.line.gangs.stated_network import read_measurement
from gangline.line.record.context import RunContext
from gangline.spec.measurements import RankOrder, SplitTile
from gangline.spec.record import SPLIT, Artifact
from gangline.storage.objects.blobs import PREFIX, put_blob

_SHOWN = 4
"""Tiles, and groups of each."""
_KEPT_BY_VOLCANO = (
    "; Volcano keeps them only where its scheduler has the plugin network-topology-aware (volcano-scheduler.conf) and"
    " HyperNodes of tier 1 are these groups; configure both, then run it again"
)


def rank_order(ctx: RunContext, stage: str, status: GangStatus) -> RankOrder | None:
    """Order of its nodes, with events of what is not as planned; None: their places or servers are not known."""
    if not status.placed or len(status.placed) != len(status.servers):
        return None
    order = with_speeds(verify(status.placed, status.servers, tile=status.tile), _measured_links(ctx))
    if order.num_moved:
        first = order.moved[0]
        ctx.record_event(
            stage,
            "placement",
            f"{order.num_moved} of {len(status.servers)} nodes run on other servers than {status.placed_by} gave them,"
            f" as node {first.node_rank} on {first.found} instead of {first.placed}",
        )
    if order.num_split:
        how = _KEPT_BY_VOLCANO if ctx.site.launch.route == "volcano" else ""
        ctx.record_event(stage, SPLIT, _split_words(order, status) + how)
    return order


def rank_tables(ctx: RunContext, status: GangStatus) -> tuple[Artifact, ...]:
    """Where each rank is and what its leaf carries, for readers of switches' counters; none: groups are not known."""
    groups = {server.name: f"{server.block}/{server.group}" for server in status.placed if server.group}
    procs = ctx.output("plan", "procs_per_node")
    if not (procs and groups and groups.keys() >= set(status.servers)):
        return ()
    data = rank_table(status.servers, groups, ranks_per_server=int(procs)).encode()
    key = put_blob(ctx.store, data)
    digest = key.removeprefix(PREFIX)
    return (Artifact(kind="ranks", key=key, media_type="text/csv", size_bytes=len(data), sha256=digest),)


def _split_words(order: RankOrder, status: GangStatus) -> str:
    """Which tiles are in which groups."""
    tiles = -(-len(status.servers) // status.tile)
    shown = _first([_tile_words(each) for each in order.split], order.num_split or 0)
    verb = "does" if order.num_split == 1 else "do"
    return (
        f"{order.num_split} of {tiles} tiles of {status.tile} nodes {verb} not share a group of servers as the plan"
        f" wants: {', '.join(shown)}"
    )


def _first(words: list[str], count: int) -> list[str]:
    """The first of `count` words, and how many are left out."""
    return words[:_SHOWN] + ([f"{count - _SHOWN} more"] if count > _SHOWN else [])


def _tile_words(tile: SplitTile) -> str:
    names = [name.removeprefix("/") for name in tile.groups]
    return f"nodes {tile.first} to {tile.last} on {' and '.join(_first(names, len(names)))}"


def _measured_links(ctx: RunContext) -> LinkMeasurement | None:
    """None: nothing was measured, or it cannot be read, for which no run fails."""
    try:
        return read_measurement(ctx.store)
    except GanglineError:
        return None
