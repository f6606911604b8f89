"""Shapes of a gang of two kinds of GPU for a model that was traced: every way to run them, and the fastest.

Samples are dealt by whole passes, and both kinds run the same passes. Copies, copies that share the optimizer, and
replicas of shards that are a node each are weighed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from gangline.fabric.shares import deal_passes, even_shares
from gangline.planner.forecast.memory import Fit
from gangline.planner.forecast.memory_options import memories, offload_obstacle
from gangline.planner.forecast.shape_forecast import ExecutionOptions, forecast_of, formula_of
from gangline.planner.selection.gpu_pair import GpuPair, with_batch
from gangline.planner.selection.model_cuts import refusal_reason
from gangline.planner.selection.request import PlanRequest
from gangline.planner.shapes.shape import Shape, shape_of
from gangline.planner.shapes.world_size import MOST_AUTO
from gangline.planner.transformer.layout import divisors
from gangline.spec.forecast import Forecast
from gangline.spec.plan import Memory
from gangline.spec.profile import ModelProfile
from gangline.spec.strategies import STRATEGIES


@dataclass(frozen=True, kw_only=True, slots=True)
class UnlikeShape:
    """One way to run a shape on both kinds."""

    shape: Shape
    micro_batch: int
    memory: Memory
    shares: tuple[int, ...]
    forecasts: tuple[Forecast, Forecast]
    """Forecasts of a gang of each kind alone in which all replicas take what the busiest one of that kind takes."""

    @property
    def step_seconds(self) -> float:
        """Time until the last replica is done; 0: not known."""
        return max(each.step_seconds or 0.0 for each in self.forecasts)

    @property
    def missing(self) -> str:
        """Why there is no step time; empty: there is."""
        return next((each.missing for each in self.forecasts if each.step_seconds is None), "")


@dataclass(slots=True)
class UnlikeShapes:
    """Search for shapes on one pair."""

    pair: GpuPair
    profile: ModelProfile
    misses: list[Fit] = field(default_factory=list)
    """Needs of the fuller kind, of ways to run a shape that a rank of some kind does not hold."""

    def found(self) -> list[UnlikeShape]:
        """The best way to run each shape that fits."""
        return [best for shape in self._shapes() if (best := self._best_of(shape)) is not None]

    def _shapes(self) -> Iterator[Shape]:
        line, nodes = self.pair.line, sum(each.num_nodes for each in self.pair.kinds)
        for each in STRATEGIES.values():
            is_asked = line.train.strategy in ("auto", each.name, *each.aliases)
            if not is_asked or not each.auto_order or each.layout not in ("replicas", "replicas_of_shards"):
                continue
            shape = shape_of(each.name, self.pair.world_size, nodes)
            if not (offload_obstacle(line, shape, "cuda") or refusal_reason(line, shape, self.profile)):
                yield shape

    def _best_of(self, shape: Shape) -> UnlikeShape | None:
        """The fastest passes with the fewest savings of memory that let any fit; None: none fits."""
        train = self.pair.line.train
        requested = train.mesh.micro_batch
        sizes = [each for each in divisors(train.global_batch) if each <= MOST_AUTO]
        counted = [
            (size, *divmod(train.global_batch, size * shape.mesh.dp_shard))
            for size in (sizes if requested == "auto" else [requested])
        ]
        whole = [(size, passes) for size, passes, left in counted if not left and passes >= shape.mesh.dp_replicate]
        for memory in memories(self.pair.line, shape, "cuda", self.profile):
            if memory.offload == "cpu":
                continue
            fitting = [gang for each in whole if (gang := self._dealt(shape, *each, memory)) is not None]
            if fitting:
                return min(fitting, key=lambda each: (each.step_seconds, -each.micro_batch))
        return None

    def _dealt(self, shape: Shape, size: int, passes: int, memory: Memory) -> UnlikeShape | None:
        """None: a rank of some kind does not hold it."""
        pair, mesh = self.pair, shape.mesh
        options = ExecutionOptions(micro_batch=size, precision=pair.requests[0].precision, memory=memory)
        first, second = (partial(_seconds, request, shape, options) for request in pair.requests)
        replicas = pair.replicas(mesh)
        taken = deal_passes(passes, replicas, (first, second))
        dealt = [own for total, count in zip(taken, replicas, strict=True) for own in even_shares(total, count)]
        shares = tuple(own * size * mesh.dp_shard for own in dealt)
        busiest = pair.busiest(mesh, shares)
        fits = [each.fit_of(shape, size, memory) for each in busiest]
        if not all(each.holds for each in fits):
            self.misses.append(max(fits, key=lambda each: each.ratio or 0.0))
            return None
        one, other = (_forecast(each, shape, options, fit) for each, fit in zip(busiest, fits, strict=True))
        return UnlikeShape(shape=shape, micro_batch=size, memory=memory, shares=shares, forecasts=(one, other))


def _seconds(request: PlanRequest, shape: Shape, options: ExecutionOptions, passes: int) -> float:
    """Seconds of a step whose replicas all take so many passes; 0: not known."""
    asked = with_batch(request, passes * options.micro_batch * shape.mesh.data_parallel)
    return formula_of(asked.evidence, shape, options).step_seconds or 0.0


def _forecast(request: PlanRequest, shape: Shape, options: ExecutionOptions, fit: Fit) -> Forecast:
    found = forecast_of(request.evidence, shape, options, fit.need_bytes)
    return request.interrupted(replace(found, memory_causes=fit.causes), shape.mesh.world_size)
