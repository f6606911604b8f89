"""What an optimizer keeps, takes and sends: elementwise rules by bytes, matrix rules by the work they hand in. Pure.

A second of computing hides one exchange: a forward pass has for updates of matrices what the site's share of computing
that hides communication leaves of it, after gradients and shards.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil, floor
from typing import Any

from gangline.planner.cost.exchange import Collective
from gangline.planner.settings import FORWARD
from gangline.spec.config.optimizer import ADAMW_MOMENT_BYTES, moment_bytes
from gangline.spec.forecast import UpdateTraffic, exposed_seconds
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Device
from gangline.spec.profile import MatrixWork, ModelProfile
from gangline.spec.strategies import Wrapping

UPDATED_BYTES = 14
"""Read and written of one parameter by an update, in addition to its moments, which are read and written once."""

_ASSEMBLED = 6
"""Times a group of matrices is in memory of a host at most: one computed with its updates, the next one as it is sent
and received, updates of the last one as they are."""

_IN_FLIGHT = 2
"""Buckets of updates that a step which waits for them has on their way at a time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerModel:
    """An optimizer by its costs."""

    moment_bytes: float = ADAMW_MOMENT_BYTES
    """Kept with each parameter, on average over the model."""
    matrix_work: MatrixWork | None = None
    """Work of the rule that updates whole matrices; None: there is none."""

    @property
    def owner_bytes(self) -> int:
        """Kept besides, on the owners of matrices, over the whole model."""
        return self.matrix_work.owner_bytes if self.matrix_work else 0

    def owners(self, mesh: Mesh) -> int:
        """Ranks of a stage of `mesh` that share the updates of its matrices."""
        copies = 1 if self.matrix_work and self.matrix_work.repeats else mesh.dp_replicate
        return mesh.dp_shard * mesh.cp * mesh.tp * copies

    def owned_bytes(self, mesh: Mesh) -> float:
        """Bytes that one owner keeps of its matrices."""
        return self.owner_bytes / (mesh.pp * self.owners(mesh))

    def saved_bytes(self, parameters: float) -> float:
        """Bytes of a model with so many parameters, wherever ranks keep them."""
        return self.moment_bytes * parameters + self.owner_bytes

    def streamed_bytes(self, parameters: float) -> float:
        """Read and written by one update of so many parameters: of AdamW 30 for each."""
        return (UPDATED_BYTES + 2 * self.moment_bytes) * parameters

    def update_bytes(self, mesh: Mesh) -> float:
        """Bytes of matrices and their updates that a rank holds at most in a step of the optimizer, without padding."""
        work, hosts, owners = self.matrix_work, mesh.dp_shard * mesh.cp * mesh.tp, self.owners(mesh)
        if work is None:
            return 0.0
        own = work.element_bytes * work.parameters / (mesh.pp * owners) if owners > hosts else 0.0
        assembled = self._assembled_bytes(work, mesh) if hosts > 1 else 0.0
        return max(own + assembled, self.held_bytes(mesh))

    def held_bytes(self, mesh: Mesh) -> float:
        """Bytes of updates at the end of the step: all where they travel during the next forward pass; else its own,
        which wait for their turn, and those of others in two buckets; none where no rank has a copy."""
        work, hosts, owners = self.matrix_work, mesh.dp_shard * mesh.cp * mesh.tp, self.owners(mesh)
        if work is None or owners == hosts:
            return 0.0
        elements, copies = work.parameters / (mesh.pp * hosts), owners // hosts
        travels = min(1.0, _IN_FLIGHT / update_buckets(work, elements))
        held = 1.0 if work.overlaps else (1 + travels * (copies - 1)) / copies
        return work.element_bytes * elements * held

    def _assembled_bytes(self, work: MatrixWork, mesh: Mesh) -> float:
        """Bytes of whole matrices on one host: what `c_max_bytes` allows at a time, less in a plan that is faster."""
        largest = work.element_bytes * work.largest_elements
        share = work.element_bytes * work.parameters / (mesh.pp * self.owners(mesh))
        return _ASSEMBLED * min(max(share, largest), max(work.c_max_bytes, largest))

    def matrix_seconds(self, mesh: Mesh, flops_per_second: float) -> float:
        """Seconds of the owner that computes most: an equal share, or the largest matrix; measured, if it is."""
        work, owners = self.matrix_work, mesh.pp * self.owners(mesh)
        if work is None:
            return 0.0
        if work.seconds is not None and work.largest_seconds is not None:
            return max(work.seconds / owners, work.largest_seconds)
        return max(work.flops / owners, work.largest_flops) / flops_per_second


ADAMW = OptimizerModel()


def update_buckets(work: MatrixWork, elements: float) -> int:
    """Buckets in which owners send the updates of so many elements of a rank, of equal size here."""
    return max(1, work.blocks if work.bucket_elements is None else ceil(elements / work.bucket_elements))


def optimizer_model(table: Mapping[str, Any], profile: ModelProfile | None) -> OptimizerModel:
    """Costs of a line's table `[optimizer]` and a model; what the task builds itself counts as AdamW."""
    if profile is not None and profile.builds_optimizer:
        return ADAMW
    elementwise, work = moment_bytes(dict(table)), profile.matrix_work if profile else None
    if profile is None or work is None:
        return OptimizerModel(moment_bytes=elementwise)
    others = profile.parameters - work.parameters
    kept = work.sharded_bytes + elementwise * others
    return OptimizerModel(moment_bytes=kept / profile.parameters, matrix_work=work)


def may_hide(work: MatrixWork | None, wrapping: Wrapping, device: Device) -> bool:
    """Blocks of the next forward pass wait for updates one by one; under FSDP2 on a GPU they all wait at its start."""
    return work is not None and work.overlaps and not (device == "cuda" and wrapping.is_composable)


def first_forward(computed: float, micro_batches: int, products: float) -> float:
    """Seconds of the first forward pass of a step that computes so long; `products` with those made again, over 1."""
    return FORWARD * computed / products / micro_batches


def what_hides(forward: float, *, computed: float, exchanged: float, overlap: float) -> float:
    """Seconds of a forward pass that hide updates: the site's share, as far as what is exchanged during
    all passes leaves of it."""
    return min(overlap * forward, max(0.0, overlap * computed - exchanged))


def update_traffic(
    sent: Collective, work: MatrixWork, seconds_of: Callable[[Collective], float | None], *, forward_seconds: float,
    computed: float, exchanged: float, overlap: float,
) -> UpdateTraffic | None:  # fmt: skip
    """What ranks wait for of buckets that are `sent` during the blocks of the next forward pass; None: it is not known
    how long messages take. Other arguments are those of `what_hides`."""
    each = seconds_of(sent)
    if each is None:
        return None
    hides = what_hides(forward_seconds, computed=computed, exchanged=exchanged, overlap=overlap)
    buckets, blocks = round(sent.count), max(1, work.blocks)
    before = [floor(blocks * at / buckets) / blocks for at in range(buckets)]
    seconds = [each] * buckets
    return UpdateTraffic(
        buckets=buckets, size_bytes=sent.size_bytes, seconds=each * buckets, hiding_seconds=hides,
        exposed_seconds=exposed_seconds(seconds, before, hides),
        least_exposed_seconds=exposed_seconds(seconds, before, forward_seconds),
    )  # fmt: skip


def matrix_updates(work: MatrixWork, mesh: Mesh) -> Iterator[Collective]:
    """Parts of matrices to their hosts and back, then updates to all copies."""
    hosts, owners = mesh.dp_shard * mesh.cp * mesh.tp, OptimizerModel(matrix_work=work).owners(mesh)
    if hosts > 1:
        yield Collective(
            part="optimizer", kind="all_to_all", size_bytes=work.element_bytes * work.parameters / (mesh.pp * owners),
            ranks=hosts, count=2,
        )  # fmt: skip
    if owners > hosts:
        yield published_updates(work, mesh)


def published_updates(work: MatrixWork, mesh: Mesh) -> Collective:
    """Updates from owners to all copies, in equal buckets; to one rank no copy."""
    hosts = mesh.dp_shard * mesh.cp * mesh.tp
    elements = work.parameters / (mesh.pp * hosts)
    buckets = update_buckets(work, elements)
    return Collective(
        part="optimizer", kind="all_gather", size_bytes=work.element_bytes * elements / buckets,
        ranks=OptimizerModel(matrix_work=work).owners(mesh) // hosts, count=buckets, rank_stride=hosts,
    )  # fmt: skip
