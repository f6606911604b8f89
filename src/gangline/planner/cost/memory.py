"""Memory of one rank: state by formula, activations where a profile of the model has them."""

from dataclasses import dataclass

from gangline.planner.cost.optimizer import OptimizerModel
from gangline.planner.layouts.layout import Layout
from gangline.planner.settings import GRADIENT_BYTES, PASS_BYTES, SHARES, WEIGHT_BYTES, Fit, StepLoad, block_interval
from gangline.spec.forecast import MemoryCause
from gangline.spec.plan import Precision
from gangline.spec.profile import ModelProfile, Trace, Unit
from gangline.spec.strategies import Wrapping
from gangline.units import format_bytes

STAGED_BYTES = 4 * 64 * 2**20
"""Bytes of moments in files: two pieces of the state of 64 MiB of parameters, one under way."""

COMPUTED_AGAIN = 1.3
"""Share of what a block saves: that, and the gradients on the way through it."""


def state_bytes(profile: ModelProfile, moment_bytes: float) -> int:
    """Bytes of one whole copy, whose optimizer keeps `moment_bytes` for each parameter."""
    owned = profile.matrix_work.owner_bytes if profile.matrix_work else 0
    return round((WEIGHT_BYTES + GRADIENT_BYTES + moment_bytes) * profile.parameters) + owned


@dataclass(frozen=True, kw_only=True, slots=True)
class RankMemory:
    """Bytes of one rank at its peak, by cause; None: a cause that this model of memory does not tell apart."""

    weights: float
    """Master weights; by formula also copies in the precision of the passes."""
    gradients: float
    optimizer: float
    gathered: float | None = None
    """Whole weights in addition to their shards, and what blocks exchange; of a traced model."""
    activations: float
    """Kept from forward to backward; of a traced model also what the loss, or a block computed again, adds."""
    buffers: float | None = None
    """Logits and their gradient, or a block that is computed again or gathered, whichever is more; by formula."""
    updates: float = 0.0
    """Updates of matrices, and their state that is read from files: at the end of a step, beyond what activations and
    buffers take, which are not there then."""

    @property
    def total(self) -> float:
        """Bytes of all causes together."""
        return sum(self.by_cause.values())

    @property
    def by_cause(self) -> dict[str, float]:
        """Bytes by the name of their cause; updates where there are any."""
        names = ("weights", "gradients", "optimizer", "gathered", "activations", "buffers")
        found = {name: size for name in names if (size := getattr(self, name)) is not None}
        return found | ({"updates": self.updates} if self.updates else {})

    @property
    def causes(self) -> tuple[MemoryCause, ...]:
        """Bytes by cause, as a forecast has them."""
        return tuple(MemoryCause(cause=name, size_bytes=size) for name, size in self.by_cause.items())

    def fit(self, usable_bytes: float | None) -> Fit:
        """Need of the rank, and what it may hold."""
        cause, size = max(self.by_cause.items(), key=lambda each: each[1])
        return Fit(self.total, usable_bytes, f"{cause} {format_bytes(size)}", self.causes)


def rank_parts(profile: ModelProfile, layout: Layout, load: StepLoad) -> RankMemory:
    """What one rank holds at its peak, as far as it is known."""
    shard_parameters = _shard_parameters(profile, layout)
    moments = load.moment_bytes * shard_parameters / layout.mesh.size_of(layout.wrapping.optimizer_axes)
    if load.memory.offload == "optimizer_nvme":
        moments = min(moments, _staged(profile, layout, load))
    else:
        moments += _owner_state(profile, layout)
    gathered, exchanged = _gathered(profile, layout, load.precision)
    kept_bytes, loss_bytes, again_bytes = _activations(profile, layout, load)
    on_host = load.memory.offload == "cpu"
    activations = kept_bytes + max(loss_bytes, again_bytes)
    gradients = _gradients(profile, layout, load, activations=activations)
    return RankMemory(
        weights=0.0 if on_host else WEIGHT_BYTES * shard_parameters,
        gradients=gradients,
        optimizer=0.0 if on_host else moments,
        gathered=gathered + max(0.0, exchanged - max(0.0, loss_bytes - again_bytes)),
        activations=activations,
        updates=max(0.0, _after_step(profile, layout, load) - gradients - activations),
    )


def _staged(profile: ModelProfile, layout: Layout, load: StepLoad) -> float:
    """Bytes of moments in files: a parameter of more than a piece is its own piece, and the next one is under way."""
    largest = max((shape.rows * shape.columns for shape in profile.shapes), default=0)
    cut = layout.mesh.dp_shard * layout.mesh.cp * layout.mesh.tp * layout.mesh.size_of(layout.wrapping.optimizer_axes)
    return max(STAGED_BYTES, load.moment_bytes * largest / cut + STAGED_BYTES / 2)


def _after_step(profile: ModelProfile, layout: Layout, load: StepLoad) -> float:
    """Gradients, updates of matrices and their state from files at the end of a step, when no activations are there;
    0: no updates travel, no state is in files."""
    if load.memory.offload == "cpu":
        return 0.0
    taken = _update_bytes(profile, layout)
    if load.memory.offload == "optimizer_nvme":
        taken += _state_in_use(profile, layout)
    return GRADIENT_BYTES * _shard_parameters(profile, layout) + taken if taken else 0.0


def _update_bytes(profile: ModelProfile, layout: Layout) -> float:
    return OptimizerModel(matrix_work=profile.matrix_work).update_bytes(layout.update_mesh)


def _owner_state(profile: ModelProfile, layout: Layout) -> float:
    """State of matrices that a rank owns: their state is on one rank of all that share them."""
    return OptimizerModel(matrix_work=profile.matrix_work).owned_bytes(layout.update_mesh)


def _state_in_use(profile: ModelProfile, layout: Layout) -> float:
    """State of the matrices that an owner updates together, the largest alone if it is more than an equal share."""
    work = profile.matrix_work
    if work is None:
        return 0.0
    return min(work.batch * work.largest_owner_bytes, max(work.largest_owner_bytes, _owner_state(profile, layout)))


def host_bytes(profile: ModelProfile, layout: Layout, load: StepLoad) -> float:
    """What one rank holds in the memory of its server instead."""
    if load.memory.offload != "cpu":
        return 0.0
    kept = (WEIGHT_BYTES + GRADIENT_BYTES + load.moment_bytes) * _shard_parameters(profile, layout)
    return kept + _update_bytes(profile, layout)


def _stage_parameters(profile: ModelProfile, layout: Layout) -> float:
    """Parameters that a rank computes with; experts are shards like all others."""
    return profile.parameters / (layout.mesh.pp * layout.mesh.tp)


def _shard_parameters(profile: ModelProfile, layout: Layout) -> float:
    return _stage_parameters(profile, layout) / (layout.mesh.dp_shard * layout.mesh.cp)


def _gradients(profile: ModelProfile, layout: Layout, load: StepLoad, *, activations: float) -> float:
    """What they add to the peak: they come as activations go, but for those of DDP, whose buckets stay, and those of
    earlier micro-batches, which shards leave whole until the last one."""
    if layout.wrapping.shards:
        if load.micro_batches > 1 and load.memory.gradient_sync == "last":
            return GRADIENT_BYTES * _stage_parameters(profile, layout)
        own = 0.0 if load.memory.offload == "cpu" else GRADIENT_BYTES * _shard_parameters(profile, layout)
    else:
        own = GRADIENT_BYTES * _shard_parameters(profile, layout)
        if load.micro_batches > 1 or layout.traits.has_buckets:
            return own
    return max(0.0, own - activations)


def _gathered(profile: ModelProfile, layout: Layout, precision: Precision) -> tuple[float, float]:
    """What stays whole from forward to backward, and what a block needs while it goes back.

    fsdp keeps what lies outside the blocks, zero2 and what is cut into stages keep all.
    """
    wrapping, width = layout.wrapping, PASS_BYTES[precision]
    block = block_bytes(wrapping, width) * ((profile.largest_block_parameters or 0) / layout.mesh.tp)
    if wrapping.reshards:
        return width * profile.outside_parameters / layout.mesh.tp, block
    return width * _stage_parameters(profile, layout) if wrapping.is_composable else 0.0, block


def block_bytes(wrapping: Wrapping, width_bytes: int) -> float:
    """Bytes of each parameter of a block while it goes back, by the width of the passes: in 16 bits 0, 6 or 10.

    A block that is gathered has its gradients in float32 while they are reduced; one that is gathered for each pass is
    whole for that, and so is the next one.
    """
    if wrapping.reshards:
        return 3 * width_bytes + GRADIENT_BYTES
    return width_bytes + GRADIENT_BYTES if wrapping.is_composable else 0.0  # torch builds `replicate` on `fully_shard`


def _activations(profile: ModelProfile, layout: Layout, load: StepLoad) -> tuple[float, float, float]:
    """Kept from forward to backward; additional bytes at the loss; additional bytes at a block that is computed again.

    Tensor- and context-parallel peers share those of a sample, but for what goes into each half of a block; stages
    share those of the model.
    """
    mesh, trace = layout.mesh, profile.trace(load.precision)
    share = load.micro_batch / (mesh.tp * mesh.cp)
    if not load.micro_batch:  # only the state is asked for
        return 0.0, 0.0, 0.0
    fixed, blocks = _fixed(trace, layout, load), _blocks(trace)
    if trace is None or not blocks:
        whole = share * (profile.activations(load.precision) or 0)
        return fixed + whole * kept_share(load.memory.activation_checkpointing) * load.live / mesh.pp, 0.0, 0.0
    saved = min(sum(unit.count * unit.saved_bytes for unit in blocks), trace.activation_bytes_per_sample)
    handed = sum(unit.count * unit.boundary_bytes for unit in blocks)
    kept_bytes = _kept(load.memory.activation_checkpointing, saved, handed)
    if load.memory.activation_checkpointing != "full":
        kept_bytes = min(kept_bytes + 2 * (mesh.tp - 1) * handed, mesh.tp * kept_bytes)
    largest = max(unit.saved_bytes for unit in blocks) / sum(unit.count * unit.saved_bytes for unit in blocks)
    again = COMPUTED_AGAIN * saved * largest if load.memory.activation_checkpointing != "none" else 0.0
    outside = (trace.activation_bytes_per_sample - saved) / load.memory.loss_chunks
    return fixed + share * kept_bytes * load.live / mesh.pp, share * outside, share * again


def _blocks(trace: Trace | None) -> list[Unit]:
    """Those that keep something."""
    return [unit for unit in trace.units if unit.name and unit.saved_bytes] if trace else []


def kept_share(word: str) -> float:
    """Share of activations that `word` keeps, of a model whose blocks were not traced."""
    return SHARES[word] if word in SHARES else 1.0 - (1.0 - SHARES["full"]) / block_interval(word)


def _kept(word: str, saved: float, handed: float) -> float:
    """Bytes of all blocks, from forward to backward: what they save, or what is handed to them."""
    if word == "selective":
        return SHARES["selective"] * saved
    return saved - max(0.0, saved - handed) / block_interval(word)


def _fixed(trace: Trace | None, layout: Layout, load: StepLoad) -> float:
    """Whatever the number of samples; under autocast that is mostly weights in 16 bits, which shards have gathered."""
    if trace is None or (layout.wrapping.shards and load.precision != "fp32"):
        return 0.0
    return trace.activation_bytes_fixed / (layout.mesh.tp * layout.mesh.pp)
