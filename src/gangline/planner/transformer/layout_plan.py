"""How a layout of a transformer is run, and what that takes: one plan of the search, as data."""

from dataclasses import dataclass, replace

from gangline.planner.transformer.layout import ModelLayout, SearchSpace, Sync
from gangline.planner.transformer.memory import RankMemory
from gangline.planner.transformer.step_time import StepParts
from gangline.spec.forecast import UpdateTraffic
from gangline.spec.plan import PipelineSchedule


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

    layout: ModelLayout
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
