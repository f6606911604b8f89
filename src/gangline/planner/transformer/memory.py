"""Memory of one rank by formula: weights, gradients, optimizer, activations and buffers of its stages. Pure."""

from dataclasses import dataclass

from gangline.planner.forecast.optimizer_model import ADAMW, OptimizerModel
from gangline.planner.forecast.widths import GRADIENT_BYTES, PASS_BYTES, WEIGHT_BYTES
from gangline.planner.transformer.costs import LOGIT_BYTES, token_costs
from gangline.planner.transformer.layout import ModelLayout, SearchSpace, Sync
from gangline.spec.plan import Precision
from gangline.spec.transformer import Transformer


@dataclass(frozen=True, kw_only=True, slots=True)
class RankMemory:
    """Bytes of one rank at its peak, by cause."""

    weights: float
    """Master weights, and copies in the precision of the passes."""
    gradients: float
    optimizer: float
    activations: float
    """Kept from forward to backward."""
    buffers: float
    """Logits and their gradient, or a block that is computed again or gathered, whichever is more."""
    updates: float = 0.0
    """Updates of matrices, at the end of a step: beyond activations and buffers, which are not there then."""

    @property
    def total(self) -> float:
        """Bytes of all causes."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.buffers + self.updates

    @property
    def by_cause(self) -> dict[str, float]:
        """Bytes by cause in the order of the table; updates where there are any."""
        names = ("weights", "gradients", "optimizer", "activations", "buffers")
        return {name: getattr(self, name) for name in names} | ({"updates": self.updates} if self.updates else {})


@dataclass(frozen=True, kw_only=True, slots=True)
class StageLoad:
    """What one pipeline rank holds of a model."""

    blocks: int
    parameters: float
    """Parameters of its stages, before tp cuts them."""
    has_head: bool
    live: float
    """Micro-batches whose activations it keeps at once, each of all its stages."""


def held_sync(sync: Sync, micro_batches: int) -> Sync:
    """When gradients are reduced: those of a single micro-batch at once, whatever `sync` says."""
    return "each" if micro_batches == 1 else sync


def state_memory(
    layout: ModelLayout, parameters: float, *, sync: Sync, width_bytes: int, optimizer: OptimizerModel = ADAMW,
    on_host: bool = False,
) -> tuple[float, float, float]:  # fmt: skip
    """Weights, gradients and optimizer of a rank whose stages have `parameters` after tp has cut them.

    Args:
        layout: How data-parallel ranks hold them.
        parameters: phi of the formulas.
        sync: Reduced after each micro-batch, gradients are in shards all the time.
        width_bytes: Of a number in the passes: 2, or 4 where they run in float32 and nothing is cast.
        optimizer: What it keeps; owners of matrices share what is theirs evenly.
        on_host: Shards and their optimizer wait in the memory of the server; gradients that are not reduced yet do not.
    """
    shards, owned = layout.shards, _owned_bytes(layout, optimizer)
    cast = width_bytes if width_bytes < WEIGHT_BYTES else 0
    if not layout.wrapping.shards:
        sharing = layout.mesh.dp_replicate if layout.wrapping.shares_optimizer else 1
        return (
            (WEIGHT_BYTES + cast) * parameters,
            GRADIENT_BYTES * parameters,
            optimizer.moment_bytes * parameters / sharing + owned,
        )
    gathered = width_bytes * parameters if not layout.wrapping.reshards else 0.0
    if on_host:
        return gathered, GRADIENT_BYTES * parameters if sync == "last" else 0.0, 0.0
    reduced = shards if sync == "each" else 1
    return (
        WEIGHT_BYTES * parameters / shards + gathered,
        GRADIENT_BYTES * parameters / reduced,
        optimizer.moment_bytes * parameters / shards + owned,
    )


def host_memory(layout: ModelLayout, parameters: float, optimizer: OptimizerModel) -> float:
    """Shards of one rank, their gradients, optimizer and updates, which are in the memory of its server."""
    kept = WEIGHT_BYTES + GRADIENT_BYTES + optimizer.moment_bytes
    return kept * parameters / layout.shards + _owned_bytes(layout, optimizer) + update_memory(layout, optimizer)


def _owned_bytes(layout: ModelLayout, optimizer: OptimizerModel) -> float:
    return optimizer.owner_bytes / (layout.mesh.pp * optimizer.owners(layout.mesh))


def block_bytes(layout: ModelLayout, *, width_bytes: int) -> float:
    """Bytes of each parameter of a block while it is computed backward: x of the formulas, 0, 0, 6, 10 in 16 bits.

    A block that is gathered has its gradients in float32 while they are reduced; one that is gathered for each pass is
    whole for that, and so is the next one.
    """
    if layout.wrapping.reshards:
        return 3 * width_bytes + GRADIENT_BYTES
    return width_bytes + GRADIENT_BYTES if layout.wrapping.shards else 0.0


def activation_memory(
    model: Transformer, layout: ModelLayout, load: StageLoad, *, micro_batch: int, recompute: str, loss_chunks: int,
    precision: Precision,
) -> tuple[float, float]:  # fmt: skip
    """Activations and buffers of a rank."""
    width = PASS_BYTES[precision]
    mesh, costs = layout.mesh, token_costs(model)
    tokens = micro_batch * model.sequence / mesh.cp / mesh.tp
    kept = costs.kept(recompute) * (width / 2) * load.live * load.blocks * tokens
    logits = LOGIT_BYTES * tokens * model.vocabulary / loss_chunks if load.has_head else 0.0
    again = costs.kept_bytes["none"] * (width / 2) * tokens if recompute != "none" else 0.0
    block = (costs.block_parameters - costs.expert_parameters * (1 - 1 / mesh.ep)) / mesh.tp
    return kept, max(logits, again + block_bytes(layout, width_bytes=width) * block)


def rank_memory(
    model: Transformer, layout: ModelLayout, load: StageLoad, *, sync: Sync, micro_batch: int, recompute: str,
    loss_chunks: int, precision: Precision = "bf16", optimizer: OptimizerModel = ADAMW, on_host: bool = False,
) -> RankMemory:  # fmt: skip
    """All of one rank, by cause."""
    width = PASS_BYTES[precision]
    weights, gradients, kept = state_memory(
        layout, load.parameters / layout.mesh.tp, sync=sync, width_bytes=width, optimizer=optimizer,
        on_host=on_host,
    )  # fmt: skip
    activations, buffers = activation_memory(
        model, layout, load, micro_batch=micro_batch, recompute=recompute, loss_chunks=loss_chunks, precision=precision
    )
    return RankMemory(
        weights=weights, gradients=gradients, optimizer=kept, activations=activations, buffers=buffers,
        updates=0.0 if on_host else max(0.0, update_memory(layout, optimizer) - activations - buffers),
    )  # fmt: skip


def update_memory(layout: ModelLayout, optimizer: OptimizerModel) -> float:
    """Updates of matrices that a rank holds at the end of a step."""
    return optimizer.update_bytes(layout.mesh, owners=optimizer.owners(layout.mesh))


def memory_bound_bytes(model: Transformer, space: SearchSpace, *, optimizer: OptimizerModel = ADAMW) -> float:
    """No rank holds less: its share of the state, a block in 16 bits, and one piece of the logits of a sample; the last
    two cut by the largest degrees of the space."""
    state = (WEIGHT_BYTES + GRADIENT_BYTES + optimizer.moment_bytes) * model.parameters + optimizer.owner_bytes
    cut = max(space.tp) * max(space.cp)
    logits = LOGIT_BYTES * model.sequence * model.vocabulary / max(space.loss_chunks) / cut
    kept = token_costs(model).kept_bytes["full"] * model.sequence / cut
    return state / space.world_size + max(logits if max(space.pp) == 1 else 0.0, kept)
