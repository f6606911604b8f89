"""Memory of one rank as far as it is known: the state by formula, activations only when a profile has them."""

from dataclasses import dataclass

from gangline.planner.candidates import Shape
from gangline.spec.profile import ModelProfile

STATE_BYTES_PER_PARAMETER = 16
"""float32 master and gradient, and the two moments of AdamW."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Need of one rank beside what it may hold; None: not known."""

    need_bytes: float | None
    usable_bytes: float | None

    @property
    def holds(self) -> bool:
        """True also where nothing is known: a plan is refused for a reason only."""
        return self.need_bytes is None or self.usable_bytes is None or self.need_bytes <= self.usable_bytes

    @property
    def ratio(self) -> float | None:
        """Need in devices; None: not known."""
        if self.need_bytes is None or self.usable_bytes is None:
            return None
        return self.need_bytes / self.usable_bytes if self.usable_bytes else float("inf")


def state_bytes(profile: ModelProfile) -> int:
    """Of one whole copy."""
    return STATE_BYTES_PER_PARAMETER * profile.parameters


def rank_bytes(profile: ModelProfile | None, shape: Shape, micro_batch: int = 0) -> float | None:
    """Peak of one rank: its part of the state, what is gathered beside it, `micro_batch` samples if known."""
    if profile is None:
        return None
    state = state_bytes(profile) / shape.mesh.dp_shard
    return state + _gathered(profile, shape) + micro_batch * (profile.activation_bytes_per_sample or 0)


def _gathered(profile: ModelProfile, shape: Shape) -> int:
    """zero2 keeps all parameters from forward to backward; fsdp holds one block at a time, with its gradients."""
    if shape.mesh.dp_shard == 1:
        return 0
    if shape.strategy == "zero2":
        return 4 * profile.parameters
    return 8 * (profile.largest_block_parameters or 0)
