"""Table of a gang's ranks for those who read counters of switches: where each is, and the flows to expect. Pure."""

from collections.abc import Mapping, Sequence

from gangline.fabric.traffic.rings import crossing_flows

HEADER = "rank,node_rank,server,group,rail,uplink_flows"


def rank_table(servers: Sequence[str], group_of: Mapping[str, str], *, ranks_per_server: int) -> str:
    """CSV, a line for each rank.

    `rail` is the place of the rank on its server, whose NIC hangs on that leaf of the group; `uplink_flows` are edges
    of a ring over all servers that leave the group: so many flows go up from each of its leaves, and come down to it.

    Args:
        servers: In node-rank order.
        group_of: Group of each of them.
        ranks_per_server: One a NIC.
    """
    flows = crossing_flows(servers, group_of)
    rows = (
        f"{node * ranks_per_server + rail},{node},{server},{group_of[server]},{rail},{flows[group_of[server]]}"
        for node, server in enumerate(servers)
        for rail in range(ranks_per_server)
    )
    return "\n".join([HEADER, *rows]) + "\n"
