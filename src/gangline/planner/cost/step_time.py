"""Step time by part (compute, communication, optimizer, checkpoint, bubble), calibrated by earlier runs. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gangline.planner.cost.averaging import compression_work
from gangline.planner.cost.calibration import Calibration, kind_of
from gangline.planner.cost.exchange import Collective
from gangline.planner.cost.memory import num_owners
from gangline.planner.cost.optimizer import (
    ADAMW,
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
from gangline.spec.profile import ModelProfile, Trace

UPDATE_MOVES = {"cpu": 20, "cuda": 1}
"""Smallest operations that one tensor costs: its norm, clipping, the update, Python between them; as seen on gloo. On a
GPU one kernel takes many tensors, as seen on an H100."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepInputs:
    """Parts of a step of one plan."""

    profile: ModelProfile
    trace: Trace
    layout: Layout
    load: StepLoad
    messages: Sequence[Collective]
    """Messages of a step, by `collectives`."""
    bubble: float = 0.0
    """Share of a rank's time."""
    overlap: float = 0.0
    """Share of computing that hides communication."""
    save_every: int = 1
    """Steps."""
    optimizer: OptimizerModel = ADAMW
    samples: float = 1.0
    """Samples of one step on one data-parallel rank."""
    host: HostRates | None = None
    """Shards wait on the host of this rank; None: on its device."""

    @property
    def updated_parameters(self) -> float:
        """Whose moments one rank holds and updates."""
        mesh, whole = self.layout.mesh, self.profile.parameters
        copies = mesh.size_of(self.layout.wrapping.optimizer_axes)
        return whole / (mesh.pp * mesh.tp * mesh.dp_shard * mesh.cp * copies)


def step_terms(
    inputs: StepInputs, speeds: Speeds, known: Calibration
) -> tuple[tuple[Term, ...], str, UpdateTraffic | None]:
    """Parts that are known; why others are not, empty: all are; updates that travel during the next forward pass."""
    computed = _passes(inputs, speeds)
    updates = _late_updates(inputs, speeds, computed)
    raw = {
        part: _seconds(part, inputs, speeds, computed, updates)
        for part in ("compute", "communication", "optimizer", "checkpoint")
    }
    terms = {
        part: known.corrected(part, kind_of(inputs.layout.mesh), seconds, _origin(part, inputs, speeds))
        for part, seconds in raw.items()
        if seconds is not None
    }
    if inputs.bubble:
        terms["bubble"] = _bubble(inputs, terms, known)
    terms |= {"data": known.learned("data", inputs.samples), "other": known.learned("other")}
    return tuple(terms.values()), _missing(inputs, raw), updates


def _missing(inputs: StepInputs, raw: dict[str, float | None]) -> str:
    if why := unknown_traffic(inputs.profile, inputs.layout, inputs.load):
        return why
    unknown = [part for part, seconds in raw.items() if seconds is None]
    return f"no rate is known for {', '.join(unknown)}" if unknown else ""


def _seconds(
    part: str, inputs: StepInputs, speeds: Speeds, computed: float | None, updates: UpdateTraffic | None
) -> float | None:
    """Seconds before any correction; None: some rate is not known."""
    exchanged = _exchanged(part, inputs, speeds)
    if part == "communication":
        if exchanged is None or computed is None or unknown_traffic(inputs.profile, inputs.layout, inputs.load):
            return None
        return max(0.0, exchanged - inputs.overlap * computed) + _shard_transfers(inputs)
    own = computed if part == "compute" else (_update if part == "optimizer" else _save)(inputs, speeds)
    if own is None or exchanged is None:
        return None
    return own + exchanged - (updates.hidden_seconds if updates and part == "optimizer" else 0.0)


def _late_updates(inputs: StepInputs, speeds: Speeds, computed: float | None) -> UpdateTraffic | None:
    """Updates that travel during the next forward pass; None: there are none, or some rate is not known."""
    work, layout = inputs.optimizer.matrix_work, inputs.layout
    owners, hosts = num_owners(layout, work), layout.mesh.dp_shard * layout.mesh.cp * layout.mesh.tp
    if work is None or not work.overlaps or owners == hosts or computed is None:
        return None
    exchanged = _exchanged("communication", inputs, speeds)
    if exchanged is None:
        return None
    device = speeds.rates.device if speeds.rates else "cuda"
    first = first_forward(
        computed, inputs.load.micro_batches, _recompute_factors(inputs.load.memory.activation_checkpointing)[0]
    )
    forward = first * _block_share(inputs.trace) if may_hide(work, layout.wrapping, device) else 0.0
    return update_traffic(
        published_updates(work, layout.mesh, owners=owners), work, speeds.exchange_seconds, forward_seconds=forward,
        computed=computed, exchanged=exchanged, overlap=inputs.overlap,
    )  # fmt: skip


def _block_share(trace: Trace) -> float:
    """Share of products that blocks make; 1 where they were not measured apart."""
    flops = sum(unit.count * unit.flops for unit in trace.units)
    return sum(unit.count * unit.flops for unit in trace.units if unit.name) / flops if flops else 1.0


def _exchanged(part: str, inputs: StepInputs, speeds: Speeds) -> float | None:
    return _sum((each.count, speeds.exchange_seconds(each)) for each in inputs.messages if each.part == part)


def _sum(rows: Iterable[tuple[float, float | None]]) -> float | None:
    """All counts times their seconds; None: some seconds are not known."""
    total = 0.0
    for count, seconds in rows:
        if seconds is None:
            return None
        total += count * seconds
    return total


def _passes(inputs: StepInputs, speeds: Speeds) -> float | None:
    """Forward and backward of all micro-batches: products and fused attention by their rates, everything else by what
    it moves; attention that is not fused is products and moves like any other."""
    trace, mesh, load = inputs.trace, inputs.layout.mesh, inputs.load
    parts = mesh.tp * mesh.cp
    products, moved = _recompute_factors(load.memory.activation_checkpointing)
    attended, counted = _attention(trace)
    plain = (trace.flops_per_sample - counted) * products + _recomputed_head(inputs)
    share = load.micro_batch / (parts * mesh.pp)
    rate = speeds.attention_flops_per_second or speeds.flops_per_second
    multiplied = share * (plain / speeds.flops_per_second + attended * products / rate)
    moves = max(1.0, trace.moves * moved / mesh.pp)
    size = load.micro_batch * trace.moved_bytes_per_sample * moved / (parts * mesh.pp)
    each, copies, squeezed = (
        speeds.move_seconds(size / moves),
        _shard_copies(inputs, speeds),
        _compression(inputs, speeds),
    )
    if each is None or copies is None or squeezed is None:
        return None
    return load.micro_batches * (multiplied + moves * each) + copies + squeezed


def _attention(trace: Trace) -> tuple[float, float]:
    """Operations of fused attention on one sample, both passes: those that are made, and as the trace counts them."""
    made = sum(each.count * each.flops for each in trace.attention) / trace.samples
    return made, sum(each.count * each.counted_flops for each in trace.attention) / trace.samples


def _shard_copies(inputs: StepInputs, speeds: Speeds) -> float | None:
    """What is gathered is copied out of the message, what is scattered into it; both are booked as computing."""
    return _sum(
        (each.count, speeds.move_seconds(2 * each.size_bytes))
        for each in inputs.messages
        if each.part == "communication" and each.kind in ("all_gather", "reduce_scatter")
    )


def _compression(inputs: StepInputs, speeds: Speeds) -> float | None:
    """What compression computes, which is booked under backward."""
    profile, layout, load = inputs.profile, inputs.layout, inputs.load
    if layout.mesh.dp_replicate == 1:
        return 0.0
    entries, buckets = num_averaged(profile, layout), num_buckets(profile, layout, load)
    operations, moved = compression_work(entries, profile.tensors, load.compression, buckets=buckets)
    if not operations:
        return 0.0
    each = speeds.move_seconds(moved / operations)
    return None if each is None else operations * each / load.outer_steps


def _recompute_factors(checkpointing: str) -> tuple[float, float]:
    """Work of both passes with what is computed again: of products, and of all else."""
    if checkpointing == "selective":
        return 1.0, 1 + FORWARD
    products = 1 + FORWARD / block_interval(checkpointing)
    return products, products


def _recomputed_head(inputs: StepInputs) -> float:
    """Work of a loss in pieces, which computes what lies around the blocks once more; of one sample."""
    outside = sum(each.flops for each in inputs.trace.units if not each.name)
    return FORWARD * outside if inputs.load.memory.loss_chunks > 1 else 0.0


def _update(inputs: StepInputs, speeds: Speeds) -> float | None:
    """The optimizer over what a rank holds, and what every tensor costs however small its part is here."""
    size, stages = inputs.optimizer.streamed_bytes(inputs.updated_parameters), inputs.layout.mesh.pp
    streamed, each = _stream(size, inputs, speeds), speeds.move_seconds(0.0)
    if streamed is None or each is None:
        return None
    device = "cpu" if inputs.host else speeds.rates.device if speeds.rates else "cuda"
    moves = UPDATE_MOVES[device] * inputs.profile.tensors / stages
    owners = num_owners(inputs.layout, inputs.optimizer.matrix_work)
    matrices = inputs.optimizer.matrix_seconds(stages * owners, speeds.flops_per_second)
    return streamed + each * moves + matrices


def _save(inputs: StepInputs, speeds: Speeds) -> float | None:
    """A save's copy into buffers, shared out over the steps between two."""
    size = 2 * (WEIGHT_BYTES + inputs.optimizer.moment_bytes) * inputs.updated_parameters
    seconds = _stream(size, inputs, speeds)
    return None if seconds is None else seconds / inputs.save_every


def _stream(size: float, inputs: StepInputs, speeds: Speeds) -> float | None:
    """Bytes that stream through the memory in which the shards are."""
    return size / inputs.host.memory_bytes_per_second if inputs.host else speeds.stream_seconds(size)


def _shard_transfers(inputs: StepInputs) -> float:
    if inputs.host is None:
        return 0.0
    return transfer_seconds(inputs.updated_parameters, inputs.host, inputs.layout.wrapping, inputs.load)


def _origin(part: str, inputs: StepInputs, speeds: Speeds) -> str:
    origin = speeds.exchange_origin if part == "communication" else speeds.origin
    assumed = inputs.host is not None and not inputs.host.is_given and part != "compute"
    return f"{origin}, host assumed" if assumed else origin


def _bubble(inputs: StepInputs, terms: dict[str, Term], known: Calibration) -> Term:
    """Waiting has no rate of its own; it is corrected by the times of what it waits for."""
    body = [terms[part] for part in ("compute", "communication") if part in terms]
    idle = inputs.bubble / (1 - inputs.bubble)
    raw, seconds = (idle * sum(each) for each in ([b.raw_seconds or 0.0 for b in body], [b.seconds for b in body]))
    factor = known.factors.get("bubble")
    if factor is None or not factor.count:
        return Term(part="bubble", seconds=seconds, raw_seconds=raw, origin="order of the schedule")
    return Term(part="bubble", seconds=raw * factor.value, raw_seconds=raw, origin=factor.origin(""))
