"""Inputs of the search by formula: a transformer known by its shape, what is asked of it, and the hardware. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd, inf
from typing import Literal

from gangline.planner.cost.exchange import LinkRates
from gangline.planner.cost.optimizer import ADAMW, OptimizerModel
from gangline.planner.cost.speeds import HostRates
from gangline.planner.layouts.enumerate import SearchSpace, Sync
from gangline.planner.layouts.layout import Layout
from gangline.planner.settings import PASS_BYTES, Setting, StepLoad
from gangline.spec.compression import Compression
from gangline.spec.plan import Memory, PipelineSchedule, Precision
from gangline.spec.profile import ModelProfile, ParameterShape
from gangline.spec.transformer import Transformer


@lru_cache(maxsize=64)
def formula_profile(model: Transformer) -> ModelProfile:
    """What follows from the shape of a model that was not traced."""
    return ModelProfile(
        parameters=model.parameters,
        largest_block_parameters=model.block_parameters,
        blocks=model.layers,
        tensor_cuts=gcd(model.heads, model.asked_heads, model.feed_width, model.vocabulary),
        experts=model.experts if model.experts > 1 else None,
        sequence=model.sequence,
        transformer=model,
        shapes=_shapes(model),
        origin="formula",
    )


def _shapes(model: Transformer) -> tuple[ParameterShape, ...]:
    """Shapes of all parameters, each expert's on its own."""
    layers, width = model.layers, model.width
    router = [(model.experts, width, layers)] if model.experts > 1 else []
    found = [
        *((*each, layers) for each in model.attention_matrices.values()),
        *((*each, layers * model.experts) for each in model.feed_matrices.values()),
        *router,
        (model.vocabulary, width, 1 if model.tied else 2),
        (width, 1, 2 * layers + 1),
    ]
    return tuple(ParameterShape(rows=rows, columns=columns, count=count) for rows, columns, count in found)


@dataclass(frozen=True, kw_only=True, slots=True)
class Hardware:
    """What one GPU and its links deliver."""

    flops_per_second: float
    memory_bytes_per_second: float
    links: LinkRates
    overlap: float = 0.0
    """Share of computing that hides the exchanges of data-parallel ranks."""
    host: HostRates = HostRates()


_REDUCED: Mapping[Sync, Memory] = {"each": Memory(gradient_sync="each"), "last": Memory(gradient_sync="last")}
"""What an exchange asks of the memory of a rank."""

Support = Callable[[Layout, Sync, int], str]
"""Why ranks cannot run a layout with a sync and pieces of loss; empty: they can."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What candidates are evaluated for."""

    model: Transformer
    space: SearchSpace
    hardware: Hardware
    missing: str = ""
    """Rates that are not known, so that only the work of `hardware` counts; empty: all are."""
    usable_bytes: float
    """What the peak of one rank may be by formula."""
    precision: Precision = "bf16"
    optimizer: OptimizerModel = ADAMW
    compression: Compression = Compression()
    bucket_bytes: int | None = None
    """Size of DDP's buckets; None: torch's own."""
    memory: Memory = Memory()
    """What the line asks for; what it leaves open is searched."""
    usable_host_bytes: float = inf
    """Room of one rank, for shards that wait there."""
    support: Support = lambda *_: ""

    @property
    def width_bytes(self) -> int:
        """Bytes of a number in the passes: 2, or 4 where they run in float32 and nothing is cast."""
        return PASS_BYTES[self.precision]

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

    def load(self, micro_batch: int, micro_batches: int, sync: Sync) -> StepLoad:
        """What data-parallel ranks exchange in a step of so many micro-batches."""
        return StepLoad(
            micro_batch=micro_batch, precision=self.precision, memory=_REDUCED[sync], micro_batches=micro_batches,
            compression=self.compression, bucket_bytes=self.bucket_bytes,
        )  # fmt: skip
