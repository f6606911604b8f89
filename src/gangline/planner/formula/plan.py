"""Question and answer of the search by formula: what is evaluated, and the best candidate of each layout. Pure."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

from gangline.planner.cost.optimizer import ADAMW, OptimizerModel
from gangline.planner.formula.exchange import WHOLE, GradientAveraging
from gangline.planner.formula.memory import RankMemory
from gangline.planner.formula.step_time import Hardware, StepParts
from gangline.planner.layouts.enumerate import SearchSpace, Sync
from gangline.planner.layouts.layout import Layout
from gangline.spec.forecast import UpdateTraffic
from gangline.spec.plan import PipelineSchedule, Precision
from gangline.spec.transformer import Transformer


@dataclass(frozen=True, slots=True)
class Setting:
    """How a layout is run."""

    micro_batch: int
    recompute: str
    loss_chunks: int
    sync: Sync
    schedule: PipelineSchedule


def narrowed(space: SearchSpace, setting: Setting) -> SearchSpace:
    """`space` with this one way to run its layouts."""
    return replace(
        space, micro_batches=(setting.micro_batch,), recompute=(setting.recompute,), loss_chunks=(setting.loss_chunks,),
        syncs=(setting.sync,), schedules=(setting.schedule,),
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
    on_host: bool = False
    """Its shards wait there."""
    updates: UpdateTraffic | None = None
    """Updates of matrices, where they travel during the next forward pass."""

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
        again = {"none": "", "selective": "s", "full": "f"}.get(self.setting.recompute, self.setting.recompute)
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
    usable_host_bytes: float = inf
    """Room of one rank, for shards that wait there."""
    support: Support = lambda *_: ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """Candidates of a question, by layout."""

    plans: tuple[LayoutPlan, ...]
    """One a layout, the fastest first, then misses, the nearest first."""
    slower: dict[Layout, float]
    """Layouts that were not weighed, as even their bound is beyond the band of the best: seconds of a step at least."""
    num_candidates: int
    num_weighed: int
    """Those that were weighed; the others could not be the best of their layout, or their layout not the best."""
    num_fit: int
    """Those of them that fit."""
    bound_seconds: float
    """No step on so many GPUs takes less."""
    ruled_out: Counter[str]
    """Degrees that a rule left out, by the rule."""
