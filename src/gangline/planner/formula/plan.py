"""Question and answer of the search by formula: what is evaluated, and the best candidate of each layout. Pure."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from typing import Generic, Literal, TypeVar

from gangline.planner.cost.memory import RankMemory
from gangline.planner.cost.optimizer import ADAMW, OptimizerModel
from gangline.planner.formula.exchange import WHOLE, GradientAveraging
from gangline.planner.formula.step_time import Hardware, StepParts
from gangline.planner.layouts.enumerate import SearchSpace, Sync
from gangline.planner.layouts.layout import Layout
from gangline.planner.settings import Setting
from gangline.spec.forecast import UpdateTraffic
from gangline.spec.plan import Memory, PipelineSchedule, Precision
from gangline.spec.transformer import Transformer


def narrowed(space: SearchSpace, setting: Setting) -> SearchSpace:
    """`space` with this one way to run its layouts."""
    memory = setting.memory
    return replace(
        space, micro_batches=(setting.micro_batch,), recompute=(memory.activation_checkpointing,),
        loss_chunks=(memory.loss_chunks,), syncs=(memory.gradient_sync,),
        schedules=(setting.schedule,) if setting.schedule else space.schedules,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class LayoutPlan:
    """The best candidate of one layout: the fastest that fits and that ranks here run, else the nearest miss."""

    layout: Layout
    setting: Setting
    memory: RankMemory
    parts: StepParts
    fits: bool
    unsupported: str = ""
    """The rule, where ranks here run none of its candidates."""
    updates: UpdateTraffic | None = None
    """Updates of matrices, where they travel during the next forward pass."""

    @property
    def on_host(self) -> bool:
        """Its shards wait there."""
        return self.setting.memory.offload == "cpu"

    @property
    def step_seconds(self) -> float:
        """Seconds of one step."""
        return self.parts.total

    @property
    def order(self) -> tuple[bool, float]:
        """The fastest that fit come first, then the nearest misses."""
        return not self.fits, self.step_seconds if self.fits else self.memory.total

    @property
    def name(self) -> str:
        """Name with how it is run: `fsdp-16 b4s`; f and s recompute all or what is cheap."""
        word = self.setting.memory.activation_checkpointing
        again = {"none": "", "selective": "s", "full": "f"}.get(word, word)
        return f"{self.layout.name} b{self.setting.micro_batch}{again}{' host' if self.on_host else ''}"


Support = Callable[[Layout, Sync, int], str]
"""Why ranks cannot run a layout with a sync and pieces of loss; empty: they can."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What candidates are evaluated for."""

    model: Transformer
    space: SearchSpace
    hardware: Hardware
    usable_bytes: float
    """What the peak of one rank may be by formula."""
    precision: Precision = "bf16"
    optimizer: OptimizerModel = ADAMW
    averaging: GradientAveraging = WHOLE
    memory: Memory = Memory()
    """What the line asks for; what it leaves open is searched."""
    usable_host_bytes: float = inf
    """Room of one rank, for shards that wait there."""
    support: Support = lambda *_: ""

    def setting(
        self, micro_batch: int, recompute: str, loss_chunks: int, sync: Sync, schedule: PipelineSchedule
    ) -> Setting:
        """One way to run a layout of the search space."""
        offload: Literal["cpu", "none"] = "cpu" if self.space.on_host else "none"
        memory = replace(
            self.memory, activation_checkpointing=recompute, loss_chunks=loss_chunks, offload=offload,
            gradient_sync=sync,
        )  # fmt: skip
        return Setting(micro_batch=micro_batch, precision=self.precision, memory=memory, schedule=schedule)


PlanT = TypeVar("PlanT")


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation(Generic[PlanT]):
    """Candidates of a question, by layout; of one kind of GPU, or of two."""

    plans: tuple[PlanT, ...]
    """One a layout, the fastest first, then misses, the nearest first."""
    slower: dict[Layout, float] = field(default_factory=dict)
    """Layouts that were not weighed, as even their bound is beyond the band of the best: seconds of a step at least."""
    num_candidates: int
    num_weighed: int
    """Those that were weighed; the others could not be the best of their layout, or their layout not the best."""
    num_fit: int
    """Those of them that fit."""
    bound_seconds: float
    """No step on so many GPUs takes less."""
    ruled_out: Counter[str] = field(default_factory=Counter)
    """Degrees that a rule left out, by the rule."""
