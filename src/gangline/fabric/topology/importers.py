"""Position of a server in the network, by the labels of its node: its group (one leaf) and its block (one spine). Pure.

Labels come in families, one per vendor. The first family that any node carries is used for the whole cluster, as names
of two families cannot be compared. A node without these labels has an empty group: unknown.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gangline.errors import ConfigError
from gangline.fabric.topology.inventory import Group, natural_key

LEAVES = "gangline/fabric-leaves"
"""Annotation of a node: its leaves, separated by commas, in the order of its network cards."""
FAMILIES: tuple[tuple[str, str], ...] = (
    ("gangline/fabric-group", "gangline/fabric-block"),
    ("fabric.topograph.run/tier-0", "fabric.topograph.run/tier-1"),
    ("network.topology.nvidia.com/leaf", "network.topology.nvidia.com/spine"),
    ("accelerator.topograph.run/domain", "fabric.topograph.run/tier-1"),
    ("nvidia.com/gpu.clique", "topology.kubernetes.io/zone"),
    ("topology.k8s.aws/network-node-layer-3", "topology.k8s.aws/network-node-layer-2"),
    ("cloud.google.com/gce-topology-subblock", "cloud.google.com/gce-topology-block"),
    ("oci.oraclecloud.com/host.local_block_id", "oci.oraclecloud.com/host.network_block_id"),
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/region"),
)
"""(group, block) labels, best first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeLabels:
    """Topology labels and leaves of one node object."""

    node: str
    labels: Mapping[str, str]
    leaves: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class Location:
    """Group and block of a server in the network."""

    group: str = ""
    block: str = ""
    source_labels: tuple[str, ...] = ()
    """Labels from which it was read."""


def locate(nodes_labels: Iterable[NodeLabels]) -> dict[str, Location]:
    """Location of each node, by node name.

    Raises:
        ConfigError: Servers with one value of the group label have different leaves.
    """
    nodes = list(nodes_labels)
    family = next((each for each in FAMILIES if any(each[0] in node.labels for node in nodes)), None)
    if family is None:
        return {node.node: Location() for node in nodes}
    folded = _fold(nodes, family[0])
    return {node.node: _location(node, family, folded) for node in nodes}


def read_groups(servers: Mapping[str, Location]) -> tuple[Group, ...]:
    """Groups of these servers, by block and name, the servers of each in order of their names.

    A name that two blocks use gets the block before it. Servers without a group are left out.
    """
    members: dict[tuple[str, str], list[str]] = {}
    for name in sorted(servers, key=natural_key):
        if servers[name].group:
            members.setdefault((servers[name].block, servers[name].group), []).append(name)
    number = Counter(group for _, group in members)
    return tuple(
        Group(
            name=group if number[group] == 1 else f"{block}/{group}", block=block, servers=tuple(members[block, group])
        )
        for block, group in sorted(members, key=lambda member: (natural_key(member[0]), natural_key(member[1])))
    )


def _location(node: NodeLabels, family: tuple[str, str], folded: Mapping[str, str]) -> Location:
    group, block = (node.labels.get(label, "") for label in family)
    source_labels = tuple(label for label in family if label in node.labels)
    return Location(group=folded.get(group, group), block=block, source_labels=source_labels)


def _fold(nodes: list[NodeLabels], label: str) -> dict[str, str]:
    """Group by label value: values that name one leaf each of the same set become one group, named by the first."""
    sets: dict[str, tuple[frozenset[str], str]] = {}
    for node in nodes:
        value = node.labels.get(label)
        if value is None or not node.leaves:
            continue
        leaves, first = sets.setdefault(value, (node.leaves, node.node))
        if leaves != node.leaves:
            raise ConfigError(
                f"{label}={value}: wanted one set of leaves for all its servers, found {_named(leaves)} on {first} "
                f"and {_named(node.leaves)} on {node.node}; correct {LEAVES} or the label of one of them"
            )
    names: dict[frozenset[str], str] = {}
    for value in sorted(sets):
        names.setdefault(sets[value][0], value)
    return {value: names[leaves] for value, (leaves, _) in sets.items()}


def _named(leaves: frozenset[str]) -> str:
    return "{" + ", ".join(sorted(leaves)) + "}"
