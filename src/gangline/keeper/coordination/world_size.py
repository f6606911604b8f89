"""World size of the next generation, and the nodes that take part. Pure.

A gang has one shape, unless its plan lists other sizes: then it takes the largest requested size that fits on the
nodes that are present. Ranks are numbered in the order of the participating nodes; node 0 always participates.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class GangShape:
    """World size of a generation and the nodes that take part."""

    world_size: int
    nodes: tuple[int, ...]
    """Nodes that take part, in rank order, each with the same number of ranks."""

    @property
    def per_node(self) -> int:
        """Ranks on each node that takes part."""
        return self.world_size // len(self.nodes)

    def place(self, node: int) -> int | None:
        """Position of `node` among the nodes that take part; None: it is idle."""
        return self.nodes.index(node) if node in self.nodes else None

    def ranks(self, node: int) -> range:
        """Ranks of `node`; empty: it is idle."""
        place = self.place(node)
        return range(0) if place is None else range(place * self.per_node, (place + 1) * self.per_node)


@dataclass(frozen=True, kw_only=True, slots=True)
class WorldSizes:
    """The world sizes of a plan, and how many ranks a node can hold."""

    worlds: tuple[int, ...]
    own: int
    """World size of the gang: all its nodes, each with `per_node` ranks."""
    per_node: int
    stretches: bool = False
    """The only node takes any number of ranks: processes of this machine, which share its cores."""

    def fitting(self, nodes: Sequence[int], *, at_most: int) -> GangShape | None:
        """Largest shape of up to `at_most` ranks on some of `nodes`; None: none fits."""
        shapes = (self._on(nodes, world) for world in sorted(self.worlds, reverse=True) if world <= at_most)
        return next((shape for shape in shapes if shape is not None), None)

    def _on(self, nodes: Sequence[int], world: int) -> GangShape | None:
        if world < self.own and (world <= self.per_node or self.stretches):
            return GangShape(world_size=world, nodes=tuple(nodes[:1]))
        if self.stretches:
            return GangShape(world_size=world, nodes=tuple(nodes))
        num_nodes, left = divmod(world, self.per_node)
        whole = not left and num_nodes <= len(nodes)
        return GangShape(world_size=world, nodes=tuple(nodes[:num_nodes])) if whole else None
