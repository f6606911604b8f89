"""Two kinds of GPU that one gang may use: the question about each of them, and what a replica of each takes.

What a replica takes is asked of a gang of its kind alone, on as many nodes as both have, in which all replicas have its
samples; messages between nodes go at the rate of the slower kind.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gangline.planner.layouts.layout import program_decides
from gangline.planner.request import PlanRequest
from gangline.spec.config.line import Line
from gangline.spec.config.site import Site
from gangline.spec.devices import Inventory
from gangline.spec.forecast import Forecast
from gangline.spec.mesh import Mesh

Ask = Callable[[Line, Inventory], PlanRequest]
"""The question of a line about some devices."""


@dataclass(frozen=True, slots=True)
class GpuPair:
    """Nodes of two kinds, with a question as if all of them were of one kind."""

    line: Line
    kinds: tuple[Inventory, Inventory]
    requests: tuple[PlanRequest, PlanRequest]

    @classmethod
    def of(cls, line: Line, kinds: tuple[Inventory, Inventory], ask: Ask) -> "GpuPair":
        """All nodes of both kinds."""
        nodes = sum(each.num_nodes for each in kinds)
        first, second = (ask(line, replace(each, num_nodes=nodes, others=())) for each in kinds)
        rates = [each.pool.network_bytes_per_second for each in (first, second)]
        across = None if None in rates else min(filter(None, rates))
        waits = [each.pool.network_latency_seconds for each in (first, second)]
        latency = max((each for each in waits if each is not None), default=None)
        return cls(line, kinds, (_with_network(first, across, latency), _with_network(second, across, latency)))

    @property
    def world_size(self) -> int:
        """GPUs of both kinds."""
        return self.requests[0].pool.size

    @property
    def names(self) -> tuple[str, str]:
        """Names of the kinds, as drivers call them."""
        first, second = (each.pool.name for each in self.requests)
        return first, second

    @property
    def ranks(self) -> tuple[int, int]:
        """Ranks of each kind."""
        slots = self.requests[0].pool.slots
        return self.kinds[0].num_nodes * slots, self.kinds[1].num_nodes * slots

    def replicas(self, mesh: Mesh) -> tuple[int, int]:
        """Replicas of each kind; those of the first one come first."""
        first = self.ranks[0] * mesh.dp_replicate // mesh.world_size
        return first, mesh.dp_replicate - first

    def by_kind(self, mesh: Mesh, shares: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
        """`shares` of the replicas of each kind."""
        first, _ = self.replicas(mesh)
        return shares[:first], shares[first:]

    def busiest(self, mesh: Mesh, shares: Sequence[int]) -> tuple[PlanRequest, PlanRequest]:
        """The questions, as if all replicas took what the busiest one of each kind takes."""
        first, second = (
            with_batch(request, max(own) * mesh.dp_replicate)
            for request, own in zip(self.requests, self.by_kind(mesh, shares), strict=True)
        )
        return first, second

    def money(self, forecast: Forecast) -> list[float | None]:
        """Money of each kind, of a gang that takes as long as `forecast` says."""
        return [
            None if forecast.gpu_hours is None or request.pool.price_per_hour is None
            else forecast.gpu_hours * ranks / self.world_size * request.pool.price_per_hour
            for ranks, request in zip(self.ranks, self.requests, strict=True)
        ]  # fmt: skip

    @property
    def obstacle(self) -> str:
        """Why the line or the kinds do not allow a gang of both; empty: they do."""
        line, (first, second), wanted = self.line, self.requests, self.line.train.ranks
        lacking = [name for name in self.names if not has_own_rates(first.site, name)]
        rules = (
            (bool(self.kinds[0].one_kind_because), self.kinds[0].one_kind_because),
            (program_decides(line) or not line.project.distributed, "the program decides how it trains"),
            (isinstance(wanted, tuple), "an elastic gang has GPUs of one kind: shares are those of all its replicas"),
            (isinstance(wanted, int) and wanted != self.world_size, f"train.ranks is not {self.world_size}"),
            (
                first.pool.slots != second.pool.slots,
                f"servers of {first.pool.slots} and of {second.pool.slots} GPUs: a gang has as many ranks on each",
            ),
            (first.precision != second.precision, f"{first.precision} on one kind, {second.precision} on the other"),
            (bool(lacking), f"[gpu.NAME] of site.toml does not describe {' and '.join(lacking)}"),
            (line.train.memory.offload == "cpu", "shards wait on the host in gangs of one kind of GPU only"),
        )
        return next((words for applies, words in rules if applies), "")


def has_own_rates(site: Site, name: str) -> bool:
    """The rates of this kind of GPU are its own: a site that describes one kind lends them to whatever is there."""
    return len(site.gpu) != 1 or name in site.gpu


def with_batch(request: PlanRequest, global_batch: int) -> PlanRequest:
    """The same question about another number of samples of a step."""
    line = replace(request.line, train=replace(request.line.train, global_batch=global_batch))
    return replace(request, line=line)


def _with_network(request: PlanRequest, across: float | None, latency: float | None) -> PlanRequest:
    pool = replace(request.pool, network_bytes_per_second=across, network_latency_seconds=latency)
    return replace(request, pool=pool)
