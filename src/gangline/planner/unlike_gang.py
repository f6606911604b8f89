"""Choice of a gang of two kinds of GPU, whose replicas take samples of a step by their speed; or why there is none.

Samples are dealt by whole passes, and both kinds run the same passes. Of a traced model copies, copies that share the
optimizer, and replicas of shards that are a node each are weighed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from gangline.fabric.shares import deal_passes, even_shares
from gangline.planner.choice import PlanChoice, SearchSummary
from gangline.planner.contest import Contender, TimeBounds, winner
from gangline.planner.forecast import forecast_of, formula_of
from gangline.planner.formula.choice import forecast_of_layout
from gangline.planner.formula.search import formula_question
from gangline.planner.formula.unlike import Side, UnlikeLayout, evaluate_unlike, unlike_bound_seconds
from gangline.planner.gpu_pair import GpuPair, with_batch
from gangline.planner.layouts.enumerate import divisors
from gangline.planner.layouts.layout import Layout, layout_of
from gangline.planner.layouts.rules import offload_obstacle, refusal_reason
from gangline.planner.pool import MOST_AUTO
from gangline.planner.reasons import no_fit_reason
from gangline.planner.request import PlanRequest
from gangline.planner.settings import Fit, Setting, memories
from gangline.spec.forecast import Forecast
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Candidate, Memory, Verdict
from gangline.spec.profile import ModelProfile
from gangline.spec.strategies import STRATEGIES
from gangline.spec.transformer import Transformer
from gangline.units import format_bytes, format_number, format_step


@dataclass(frozen=True, kw_only=True, slots=True)
class UnlikeGang:
    """One way to run a layout on both kinds."""

    layout: Layout
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


def unlike_gang(pair: GpuPair) -> PlanChoice | Candidate:
    """The best plan on the nodes of both kinds, or as a candidate why there is none."""
    profile = pair.requests[0].profile
    if reason := pair.obstacle:
        return _none(pair, "unsupported", reason)
    if profile is None:
        return _none(pair, "lost", "no step time: the size of the model is not known")
    if profile.transformer is not None and not profile.traces:
        return _by_formula(pair, profile.transformer)
    return _traced(pair, profile)


def _none(pair: GpuPair, verdict: Verdict, reason: str) -> Candidate:
    world = pair.world_size
    return Candidate(name=f"ddp-{world}", strategy="ddp", mesh=Mesh(dp_replicate=world), verdict=verdict, reason=reason)


def _by_formula(pair: GpuPair, model: Transformer) -> PlanChoice | Candidate:
    asked = [formula_question(each, model, pair.world_size) for each in pair.requests]
    if missing := next((words for _, words in asked if words), ""):
        return _none(pair, "lost", f"no step time: {missing}")
    first, second = (
        Side(question=question, ranks=ranks) for (question, _), ranks in zip(asked, pair.ranks, strict=True)
    )
    band = pair.requests[0].band
    evaluation = evaluate_unlike((first, second), band=band)
    if not evaluation.plans:
        return _none(pair, "unsupported", "no layout of replicas that the line allows lies on both kinds")
    entries = [
        Contender(plan=each, cost=TimeBounds.exactly(each.step_seconds), axes=each.layout.num_axes)
        for each in sorted(evaluation.plans, key=lambda each: each.layout.name)
    ]
    best = winner(entries, band=band)
    if not best.fits:
        return _none(pair, "no_fit", no_fit_reason(_need(pair, best)))
    mesh, bound = best.layout.mesh, unlike_bound_seconds((first, second), pair.line.train.global_batch)
    one, other = (
        forecast_of_layout(request, model, plan, "")
        for request, plan in zip(pair.busiest(mesh, best.shares), best.plans, strict=True)
    )
    gang = UnlikeGang(
        layout=best.layout, micro_batch=best.setting.micro_batch, memory=best.setting.memory,
        shares=best.shares, forecasts=(one, other),
    )  # fmt: skip
    summary = SearchSummary(
        num_candidates=evaluation.num_candidates, num_weighed=evaluation.num_weighed, num_fit=evaluation.num_fit,
        bound_seconds=bound, settings={best.layout.name: best.plans[0].name},
    )  # fmt: skip
    return _Chosen(pair, gang, best.layout.name, bound).choice(summary)


def _need(pair: GpuPair, best: UnlikeLayout) -> Fit:
    """Need of the fuller kind."""
    fits = []
    for plan, request in zip(best.plans, pair.requests, strict=True):
        cause, size = max(plan.memory.by_cause.items(), key=lambda each: each[1])
        usable = request.pool.usable_bytes(request.pool.slots)
        fits.append(Fit(plan.memory.total, usable, f"{cause} {format_bytes(size)}"))
    return max(fits, key=lambda each: each.ratio or 0.0)


def _traced(pair: GpuPair, profile: ModelProfile) -> PlanChoice | Candidate:
    search = UnlikeGangs(pair, profile)
    found = search.found()
    if missing := next((each.missing for each in found if each.missing), ""):
        return _none(pair, "lost", f"no step time: {missing}")
    if found:
        entries = [
            Contender(plan=each, cost=TimeBounds.exactly(each.step_seconds), axes=each.layout.num_axes)
            for each in found
        ]
        best = winner(entries, band=pair.requests[0].band)
        return _Chosen(pair, best, best.layout.name, _bound(pair, best)).choice()
    if search.misses:
        return _none(pair, "no_fit", no_fit_reason(min(search.misses, key=lambda each: each.ratio or 0.0)))
    return _none(pair, "unsupported", "no replicas that the line allows lie on both kinds and share its batch")


def _bound(pair: GpuPair, gang: UnlikeGang) -> float | None:
    """All computing at the peaks of both kinds; None: one is not known."""
    flops, peaks = gang.forecasts[0].flops_per_sample, [each.device_flops or 0.0 for each in gang.forecasts]
    if flops is None or not all(peaks):
        return None
    return pair.line.train.global_batch * flops / sum(n * peak for n, peak in zip(pair.ranks, peaks, strict=True))


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The best gang of a pair."""

    pair: GpuPair
    gang: UnlikeGang
    name: str
    bound_seconds: float | None
    """No step takes less: all computing, shared by speed."""

    def choice(self, summary: SearchSummary | None = None) -> PlanChoice:
        """The gang as a choice of its own."""
        layout, forecast = self.gang.layout, self._forecast()
        chosen = Candidate(
            name=self.name, strategy=layout.strategy, mesh=layout.mesh, verdict="chosen", reason=self._reason(forecast),
            forecast=forecast,
        )  # fmt: skip
        return PlanChoice(
            name=self.name, strategy=layout.strategy, mesh=layout.mesh, micro_batch=self.gang.micro_batch,
            precision=self.pair.requests[0].precision, device="cuda", reason=chosen.reason, candidates=(chosen,),
            num_nodes=sum(each.num_nodes for each in self.pair.kinds), forecast=forecast, memory=self.gang.memory,
            shares=self.gang.shares, search=summary,
        )  # fmt: skip

    def _forecast(self) -> Forecast:
        """Forecast of the kind that is last done, with the memory of the fuller one, and what both cost."""
        forecasts = self.gang.forecasts
        slow = max(forecasts, key=lambda each: each.step_seconds or 0.0)
        rooms = [each.pool.usable_bytes(each.pool.slots) or 1.0 for each in self.pair.requests]
        fuller = max(range(2), key=lambda kind: (forecasts[kind].memory_bytes or 0) / rooms[kind])
        money = self.pair.money(slow)
        return replace(
            slow,
            memory_bytes=forecasts[fuller].memory_bytes,
            memory_causes=forecasts[fuller].memory_causes,
            money=None if None in money else sum(filter(None, money)),
            device_flops=None,
        )

    def _reason(self, forecast: Forecast) -> str:
        """Samples, seconds and money of each kind, and what no split takes less than."""
        pair, shares = self.pair, self.pair.by_kind(self.gang.layout.mesh, self.gang.shares)
        parts = []
        for number, name in enumerate(pair.names):
            nodes, seconds = pair.kinds[number].num_nodes, self.gang.forecasts[number].step_seconds or 0.0
            money = pair.money(forecast)[number]
            price = "" if money is None else f" (money {format_number(money)})"
            servers = f"{nodes} servers" if nodes > 1 else "1 server"
            parts.append(f"{servers} of {name} take {sum(shares[number])} samples in {format_step(seconds)}{price}")
        bound = "" if self.bound_seconds is None else f"; no split takes under {format_step(self.bound_seconds)}"
        return f"{', '.join(parts)}{bound}"


@dataclass(slots=True)
class UnlikeGangs:
    """Search for shapes of a traced model on one pair."""

    pair: GpuPair
    profile: ModelProfile
    misses: list[Fit] = field(default_factory=list)
    """Needs of the fuller kind, of ways to run a layout that a rank of some kind does not hold."""

    def found(self) -> list[UnlikeGang]:
        """The best way to run each layout that fits."""
        return [best for layout in self._shapes() if (best := self._best_of(layout)) is not None]

    def _shapes(self) -> Iterator[Layout]:
        line, nodes = self.pair.line, sum(each.num_nodes for each in self.pair.kinds)
        for each in STRATEGIES.values():
            is_asked = line.train.strategy in ("auto", each.name, *each.aliases)
            if not is_asked or not each.auto_order or each.layout not in ("replicas", "replicas_of_shards"):
                continue
            layout = layout_of(each.name, self.pair.world_size, nodes)
            if not (offload_obstacle(line, layout, "cuda") or refusal_reason(line, layout, self.profile)):
                yield layout

    def _best_of(self, layout: Layout) -> UnlikeGang | None:
        """The fastest passes with the fewest savings of memory that let any fit; None: none fits."""
        train = self.pair.line.train
        requested = train.mesh.micro_batch
        sizes = [each for each in divisors(train.global_batch) if each <= MOST_AUTO]
        counted = [
            (size, *divmod(train.global_batch, size * layout.mesh.dp_shard))
            for size in (sizes if requested == "auto" else [requested])
        ]
        whole = [(size, passes) for size, passes, left in counted if not left and passes >= layout.mesh.dp_replicate]
        for memory in memories(self.pair.line, layout, "cuda", self.profile):
            if memory.offload == "cpu":
                continue
            fitting = [gang for each in whole if (gang := self._dealt(layout, *each, memory)) is not None]
            if fitting:
                return min(fitting, key=lambda each: (each.step_seconds, -each.micro_batch))
        return None

    def _dealt(self, layout: Layout, size: int, passes: int, memory: Memory) -> UnlikeGang | None:
        """None: a rank of some kind does not hold it."""
        pair, mesh = self.pair, layout.mesh
        options = Setting(micro_batch=size, precision=pair.requests[0].precision, memory=memory)
        first, second = (partial(_seconds, request, layout, options) for request in pair.requests)
        replicas = pair.replicas(mesh)
        taken = deal_passes(passes, replicas, (first, second))
        dealt = [own for total, count in zip(taken, replicas, strict=True) for own in even_shares(total, count)]
        shares = tuple(own * size * mesh.dp_shard for own in dealt)
        busiest = pair.busiest(mesh, shares)
        fits = [each.fit_of(layout, size, memory) for each in busiest]
        if not all(each.holds for each in fits):
            self.misses.append(max(fits, key=lambda each: each.ratio or 0.0))
            return None
        one, other = (_forecast(each, layout, options, fit) for each, fit in zip(busiest, fits, strict=True))
        return UnlikeGang(layout=layout, micro_batch=size, memory=memory, shares=shares, forecasts=(one, other))


def _seconds(request: PlanRequest, layout: Layout, options: Setting, passes: int) -> float:
    """Seconds of a step whose replicas all take so many passes; 0: not known."""
    asked = with_batch(request, passes * options.micro_batch * layout.mesh.data_parallel)
    return formula_of(asked, layout, options).step_seconds or 0.0


def _forecast(request: PlanRequest, layout: Layout, options: Setting, fit: Fit) -> Forecast:
    found = forecast_of(request, layout, options, fit.need_bytes)
    return request.interrupted(replace(found, memory_causes=fit.causes), layout.mesh.world_size)
