"""Step time by part (compute, communication, optimizer, checkpoint, bubble), calibrated by earlier runs. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from gangline.planner.cost.averaging import compression_work
from gangline.planner.cost.calibration import Calibration, kind_of
from gangline.planner.cost.exchange import Collective
from gangline.planner.cost.optimizer import (
    OptimizerModel,
    first_forward,
    may_hide,
    published_updates,
    update_traffic,
)
from gangline.planner.cost.speeds import HostRates, Speeds, transfer_seconds
from gangline.planner.cost.traffic import num_averaged, num_buckets, unknown_traffic
from gangline.planner.layouts.layout import Layout
from gangline.planner.settings import FORWARD, WEIGHT_BYTES, StepLoad, block_interval
from gangline.spec.forecast import Term, UpdateTraffic
from gangline.spec.plan import Device
from gangline.spec.profile import ModelProfile, Trace

UPDATE_MOVES = {"cpu": 20, "cuda": 1}
"""Smallest operations that one tensor costs: its norm, clipping, the update, Python between them; as seen on gloo. On a
GPU one kernel takes many tensors, as seen on an H100."""


@dataclass(frozen=True, kw_only=True)
class TracedStep:
    """One step of a plan of a traced model, and the speeds at which it runs; seconds of a part are None where some rate
    is not known."""

    profile: ModelProfile
    trace: Trace
    layout: Layout
    load: StepLoad
    speeds: Speeds
    messages: Sequence[Collective]
    """Messages of a step, by `collectives`."""
    bubble: float
    """Share of a rank's time."""
    overlap: float
    """Share of computing that hides communication."""
    save_every: int
    """Steps."""
    optimizer: OptimizerModel
    samples: float
    """Samples of one step on one data-parallel rank."""
    host: HostRates | None
    """Shards wait on the host of this rank; None: on its device."""

    def terms(self, known: Calibration) -> tuple[Term, ...]:
        """Parts that are known, as `known` corrects them."""
        kind = kind_of(self.layout.mesh)
        terms = {
            part: known.corrected(part, kind, seconds, self._origin(part))
            for part, seconds in self._raw.items()
            if seconds is not None
        }
        if self.bubble:
            terms["bubble"] = self._bubble(terms, known)
        terms |= {"data": known.learned("data", self.samples), "other": known.learned("other")}
        return tuple(terms.values())

    @property
    def missing(self) -> str:
        """Why some part is not known; empty: all are."""
        unknown = ", ".join(part for part, seconds in self._raw.items() if seconds is None)
        return self._unknown_traffic or (f"no rate is known for {unknown}" if unknown else "")

    @cached_property
    def updates(self) -> UpdateTraffic | None:
        """Updates that travel during the next forward pass; None: there are none, or some rate is not known."""
        work, layout, computed = self.optimizer.matrix_work, self.layout, self._computed
        if work is None or not work.overlaps or computed is None:
            return None
        sent, exchanged = published_updates(work, layout.update_mesh), self._exchanged("communication")
        if sent.ranks == 1 or exchanged is None:
            return None
        products, _ = _recompute_factors(self.load.memory.activation_checkpointing)
        forward = first_forward(computed, self.load.micro_batches, products) * _block_share(self.trace)
        return update_traffic(
            sent, work, self.speeds.exchange_seconds, computed=computed, exchanged=exchanged, overlap=self.overlap,
            forward_seconds=forward if may_hide(work, layout.wrapping, self._device) else 0.0,
        )  # fmt: skip

    @cached_property
    def _raw(self) -> dict[str, float | None]:
        """Seconds of each part before any correction."""
        return {part: self._seconds(part) for part in ("compute", "communication", "optimizer", "checkpoint")}

    @cached_property
    def _unknown_traffic(self) -> str:
        return unknown_traffic(self.profile, self.layout, self.load)

    @property
    def _device(self) -> Device:
        return self.speeds.rates.device if self.speeds.rates else "cuda"

    @property
    def _updated_parameters(self) -> float:
        """Whose moments one rank holds and updates."""
        mesh = self.layout.mesh
        copies = mesh.size_of(self.layout.wrapping.optimizer_axes)
        return self.profile.parameters / (mesh.pp * mesh.tp * mesh.dp_shard * mesh.cp * copies)

    def _seconds(self, part: str) -> float | None:
        exchanged, computed = self._exchanged(part), self._computed
        if part == "communication":
            if exchanged is None or computed is None or self._unknown_traffic:
                return None
            exposed, shards = max(0.0, exchanged - self.overlap * computed), self._updated_parameters
            host = self.host and transfer_seconds(shards, self.host, self.layout.wrapping, self.load)
            return exposed + (host or 0.0)
        own = computed if part == "compute" else self._update() if part == "optimizer" else self._save()
        if own is None or exchanged is None:
            return None
        return own + exchanged - (self.updates.hidden_seconds if self.updates and part == "optimizer" else 0.0)

    def _exchanged(self, part: str) -> float | None:
        return _sum(
            (message.count, self.speeds.exchange_seconds(message)) for message in self.messages if message.part == part
        )

    @cached_property
    def _computed(self) -> float | None:
        """Forward and backward of all micro-batches: products and fused attention by their rates, everything else by
        what it moves; attention that is not fused is products and moves like any other."""
        trace, mesh, load, speeds = self.trace, self.layout.mesh, self.load, self.speeds
        parts = mesh.tp * mesh.cp
        products, moved = _recompute_factors(load.memory.activation_checkpointing)
        attended, counted = _attention(trace)
        plain = (trace.flops_per_sample - counted) * products + self._recomputed_head()
        share = load.micro_batch / (parts * mesh.pp)
        rate = speeds.attention_flops_per_second or speeds.flops_per_second
        multiplied = share * (plain / speeds.flops_per_second + attended * products / rate)
        moves = max(1.0, trace.moves * moved / mesh.pp)
        size = load.micro_batch * trace.moved_bytes_per_sample * moved / (parts * mesh.pp)
        each, copies, squeezed = speeds.move_seconds(size / moves), self._shard_copies(), self._compression()
        if each is None or copies is None or squeezed is None:
            return None
        return load.micro_batches * (multiplied + moves * each) + copies + squeezed

    def _recomputed_head(self) -> float:
        """Work of a loss in pieces, which computes what lies around the blocks once more; of one sample."""
        outside = sum(unit.flops for unit in self.trace.units if not unit.name)
        return FORWARD * outside if self.load.memory.loss_chunks > 1 else 0.0

    def _shard_copies(self) -> float | None:
        """What is gathered is copied out of the message, what is scattered into it; both are booked as computing."""
        return _sum(
            (message.count, self.speeds.move_seconds(2 * message.size_bytes))
            for message in self.messages
            if message.part == "communication" and message.kind in ("all_gather", "reduce_scatter")
        )

    def _compression(self) -> float | None:
        """What compression computes, which is booked under backward."""
        profile, layout, load = self.profile, self.layout, self.load
        if layout.mesh.dp_replicate == 1:
            return 0.0
        entries, buckets = num_averaged(profile, layout), num_buckets(profile, layout, load)
        operations, moved = compression_work(entries, profile.tensors, load.compression, buckets=buckets)
        if not operations:
            return 0.0
        each = self.speeds.move_seconds(moved / operations)
        return None if each is None else operations * each / load.outer_steps

    def _update(self) -> float | None:
        """The optimizer over what a rank holds, and what every tensor costs however small its part is here."""
        optimizer, each = self.optimizer, self.speeds.move_seconds(0.0)
        streamed = self._stream(optimizer.streamed_bytes(self._updated_parameters))
        if streamed is None or each is None:
            return None
        moves = UPDATE_MOVES["cpu" if self.host else self._device] * self.profile.tensors / self.layout.mesh.pp
        products = optimizer.matrix_seconds(self.layout.update_mesh, self.speeds.flops_per_second)
        return streamed + each * moves + products

    def _save(self) -> float | None:
        """A save's copy into buffers, shared out over the steps between two."""
        seconds = self._stream(2 * (WEIGHT_BYTES + self.optimizer.moment_bytes) * self._updated_parameters)
        return None if seconds is None else seconds / self.save_every

    def _stream(self, size: float) -> float | None:
        """Bytes that stream through the memory in which the shards are."""
        return size / self.host.memory_bytes_per_second if self.host else self.speeds.stream_seconds(size)

    def _origin(self, part: str) -> str:
        origin = self.speeds.exchange_origin if part == "communication" else self.speeds.origin
        assumed = self.host is not None and not self.host.is_given and part != "compute"
        return f"{origin}, host assumed" if assumed else origin

    def _bubble(self, terms: dict[str, Term], known: Calibration) -> Term:
        """Waiting has no rate of its own; it is corrected by the times of what it waits for."""
        body = [terms[part] for part in ("compute", "communication") if part in terms]
        idle = self.bubble / (1 - self.bubble)
        raw, seconds = (idle * sum(each) for each in ([b.raw_seconds or 0.0 for b in body], [b.seconds for b in body]))
        factor = known.factors.get("bubble")
        if factor is None or not factor.count:
            return Term(part="bubble", seconds=seconds, raw_seconds=raw, origin="order of the schedule")
        return Term(part="bubble", seconds=raw * factor.value, raw_seconds=raw, origin=factor.origin(""))


def _sum(rows: Iterable[tuple[float, float | None]]) -> float | None:
    """All counts times their seconds; None: some seconds are not known."""
    total = 0.0
    for count, seconds in rows:
        if seconds is None:
            return None
        total += count * seconds
    return total


def _block_share(trace: Trace) -> float:
    """Share of products that blocks make; 1 where they were not measured apart."""
    flops = sum(unit.count * unit.flops for unit in trace.units)
    return sum(unit.count * unit.flops for unit in trace.units if unit.name) / flops if flops else 1.0


def _attention(trace: Trace) -> tuple[float, float]:
    """Operations of fused attention on one sample, both passes: those that are made, and as the trace counts them."""
    made = sum(attention.count * attention.flops for attention in trace.attention) / trace.samples
    return made, sum(attention.count * attention.counted_flops for attention in trace.attention) / trace.samples


def _recompute_factors(checkpointing: str) -> tuple[float, float]:
    """Work of both passes with what is computed again: of products, and of all else."""
    if checkpointing == "selective":
        return 1.0, 1 + FORWARD
    products = 1 + FORWARD / block_interval(checkpointing)
    return products, products
