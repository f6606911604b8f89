"""Target of a drill: rank and step, chosen by the seed where the caller left them open."""

import random
from dataclasses import dataclass

from gangline.drill.catalogue import DrillKind
from gangline.errors import ConfigError, UsageError
from gangline.spec.plan import Plan


@dataclass(frozen=True, kw_only=True, slots=True)
class DrillTarget:
    """Where and when a fault is injected."""

    kind: DrillKind
    rank: int
    step: int
    seconds: float | None
    """Duration of a lasting fault."""
    ranks: int
    """World size after it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DrillRequest:
    """A drill with its options; the seed chooses those that are None."""

    kind: DrillKind
    rank: int | None
    step: int | None
    seconds: float | None
    seed: int

    def choose_target(self, plan: Plan) -> DrillTarget:
        """Rank and step of the fault, chosen by the seed between two saves in the middle of the training.

        Raises:
            UsageError: The run has no such rank or step.
            ConfigError: Its plan is not ready for the drill.
        """
        chance = random.Random(self.seed)  # noqa: S311  # a replay must choose alike
        first = plan.world_size // 2 if self.kind.setup == "nodes" else 0  # node 0 leads, and is lost only on request
        rank = self.rank if self.rank is not None else chance.randrange(first, plan.world_size)
        step = self.step if self.step is not None else chance.randint(max(1, plan.steps // 3), max(1, plan.steps // 2))
        _check(rank, step, plan)
        seconds = self.kind.seconds if self.seconds is None or self.kind.seconds is None else self.seconds
        ranks = chance.choice(_elastic_sizes(plan)) if self.kind.name == "resize" else plan.world_size
        if self.step is None:
            step = _step_before_save(step, plan) if self.kind.setup == "store" else _step_between_saves(step, plan)
        return DrillTarget(kind=self.kind, rank=rank, step=step, seconds=seconds, ranks=ranks)


def _step_between_saves(step: int, plan: Plan) -> int:
    """A step half an interval after a save, which is durable by then, so that the gang has something to resume from."""
    every = plan.checkpoint.every
    save = max(1, step // every) * every
    return save + max(1, min(every, plan.steps - save) // 2) if save + 1 < plan.steps else step


def _step_before_save(step: int, plan: Plan) -> int:
    """The step before the next save, so that a save meets the outage."""
    due = -(-(step + 1) // plan.checkpoint.every) * plan.checkpoint.every
    return max(1, min(due, plan.steps) - 1)


def _check(rank: int, step: int, plan: Plan) -> None:
    if rank >= plan.world_size:
        raise UsageError(f"--rank {rank}: the gang has {plan.world_size} ranks, 0 to {plan.world_size - 1}")
    if not 1 <= step < plan.steps:
        raise UsageError(f"--step {step}: the run has {plan.steps} steps; inject between 1 and {plan.steps - 1}")


def _elastic_sizes(plan: Plan) -> list[int]:
    sizes = [size.mesh.world_size for size in plan.sizes]
    if not sizes:
        raise ConfigError(
            f"drill resize is refused: plan {plan.name} is ready for {plan.world_size} ranks only; "
            f"train.ranks = [1, {plan.world_size + 1}] in line.toml makes the run elastic"
        )
    return sizes
