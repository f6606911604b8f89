"""Choice of a gang of two kinds of GPU, whose replicas take samples of a step by their speed; or why there is none.

What a replica takes is asked of a gang of its kind alone, on as many nodes as both have, in which all replicas have its
samples; messages between nodes go at the rate of the slower kind. Samples are dealt by whole passes, and both kinds run
the same passes. Of a traced model copies, copies that share the optimizer, and replicas of shards that are a node each
are weighed.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gangline.fabric.reliability.shares import deal_passes
from gangline.planner.budget import PlanReason
from gangline.planner.choice import PlanChoice, plan_choice
from gangline.planner.contest import Contender, SearchSummary, TimeBounds, winner
from gangline.planner.forecast import forecast_of, formula_of
from gangline.planner.formula.choice import forecast_of_layout
from gangline.planner.formula.inputs import formula_question
from gangline.planner.formula.unlike import KindT, UnlikeGang, dealt_samples, evaluate_unlike, replicas_of, whole_passes
from gangline.planner.layouts.layout import Layout, layout_of, program_decides
from gangline.planner.layouts.rules import offload_obstacle, refusal_reason
from gangline.planner.pool import MOST_AUTO, divisors, has_own_rates
from gangline.planner.reasons import candidate_of, no_fit_reason
from gangline.planner.request import Ask, PlanRequest
from gangline.planner.settings import Fit, Setting, memories
from gangline.spec.config.line import Line
from gangline.spec.devices import Inventory
from gangline.spec.forecast import Forecast
from gangline.spec.plan import Memory
from gangline.spec.profile import ModelProfile
from gangline.spec.strategies import STRATEGIES
from gangline.units import format_number, format_step


@dataclass(frozen=True, slots=True)
class GpuPair:
    """Nodes of two kinds, with a question as if all of them were of one kind."""

    kinds: tuple[Inventory, Inventory]
    requests: tuple[PlanRequest, PlanRequest]

    @classmethod
    def of(cls, line: Line, kinds: tuple[Inventory, Inventory], ask: Ask) -> "GpuPair":
        """All nodes of both kinds."""
        nodes = sum(kind.num_nodes for kind in kinds)
        asked = [ask(line, replace(kind, num_nodes=nodes, others=())) for kind in kinds]
        rates = [request.pool.gpu.network_bytes_per_second for request in asked]
        across = None if None in rates else min(filter(None, rates))
        waits = [request.pool.gpu.network_latency_seconds for request in asked]
        latency = max((each for each in waits if each is not None), default=None)
        slower: dict[str, Any] = {"network_bytes_per_second": across, "network_latency_seconds": latency}
        first, second = (
            replace(request, pool=replace(request.pool, gpu=replace(request.pool.gpu, **slower))) for request in asked
        )
        return cls(kinds, (first, second))

    @property
    def line(self) -> Line:
        """What is asked of both."""
        return self.requests[0].line

    @property
    def world_size(self) -> int:
        """GPUs of both kinds."""
        return self.requests[0].pool.size

    @property
    def names(self) -> tuple[str, str]:
        """Names of the kinds, as drivers call them."""
        first, second = (request.pool.name for request in self.requests)
        return first, second

    @property
    def ranks(self) -> tuple[int, int]:
        """Ranks of each kind."""
        slots = self.requests[0].pool.slots
        return self.kinds[0].num_nodes * slots, self.kinds[1].num_nodes * slots

    def by_kind(self, layout: Layout, shares: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
        """`shares` of the replicas of each kind; those of the first one come first."""
        first, _ = replicas_of(self.ranks, layout)
        return shares[:first], shares[first:]

    def busiest(self, layout: Layout, shares: Sequence[int]) -> tuple[PlanRequest, PlanRequest]:
        """The questions, as if all replicas took what the busiest one of each kind takes."""
        first, second = (
            with_batch(request, max(own) * layout.replicas)
            for request, own in zip(self.requests, self.by_kind(layout, shares), strict=True)
        )
        return first, second

    def money(self, forecast: Forecast) -> list[float | None]:
        """Money of each kind, of a gang that takes as long as `forecast` says."""
        return [
            None if forecast.gpu_hours is None or request.pool.gpu.price_per_hour is None
            else forecast.gpu_hours * ranks / self.world_size * request.pool.gpu.price_per_hour
            for ranks, request in zip(self.ranks, self.requests, strict=True)
        ]  # fmt: skip

    @property
    def obstacle(self) -> str:
        """Why the line or the kinds do not allow a gang of both; empty: they do."""
        line, (first, second), wanted = self.line, self.requests, self.line.train.ranks
        lacking = [name for name in self.names if not has_own_rates(first.site, name)]
        rules = (
            (bool(self.kinds[0].one_kind_because), self.kinds[0].one_kind_because),
            (program_decides(line) or not line.project.distributed, "the program decides how it trains"),
            (isinstance(wanted, tuple), "an elastic gang has GPUs of one kind: shares are those of all its replicas"),
            (isinstance(wanted, int) and wanted != self.world_size, f"train.ranks is not {self.world_size}"),
            (
                first.pool.slots != second.pool.slots,
                f"servers of {first.pool.slots} and of {second.pool.slots} GPUs: a gang has as many ranks on each",
            ),
            (first.precision != second.precision, f"{first.precision} on one kind, {second.precision} on the other"),
            (bool(lacking), f"[gpu.NAME] of site.toml does not describe {' and '.join(lacking)}"),
            (line.train.memory.offload == "cpu", "shards wait on the host in gangs of one kind of GPU only"),
        )
        return next((words for applies, words in rules if applies), "")


def with_batch(request: PlanRequest, global_batch: int) -> PlanRequest:
    """The same question about another number of samples of a step."""
    line = replace(request.line, train=replace(request.line.train, global_batch=global_batch))
    return replace(request, line=line)


def unlike_gang(pair: GpuPair) -> PlanChoice | PlanReason:
    """The best plan on the nodes of both kinds, or why there is none."""
    profile = pair.requests[0].profile
    if reason := pair.obstacle:
        return PlanReason("unsupported", reason)
    if profile is None:
        return PlanReason("lost", "no step time: the size of the model is not known")
    return _by_formula(pair) if pair.requests[0].is_by_formula else _traced(pair, profile)


def _best(pair: GpuPair, gangs: Iterable[UnlikeGang[KindT]]) -> UnlikeGang[KindT]:
    entries = [
        Contender(plan=gang, cost=TimeBounds.exactly(gang.step_seconds), axes=gang.layout.num_axes) for gang in gangs
    ]
    return winner(entries, band=pair.requests[0].band)


def _by_formula(pair: GpuPair) -> PlanChoice | PlanReason:
    first, second = (formula_question(request, pair.world_size) for request in pair.requests)
    if missing := first.missing or second.missing:
        return PlanReason("lost", f"no step time: {missing}")
    plans, search = evaluate_unlike((first, second), pair.ranks, band=pair.requests[0].band)
    if not plans:
        return PlanReason("unsupported", "no layout of replicas that the line allows lies on both kinds")
    best = _best(pair, sorted(plans, key=lambda each: each.layout.name))
    if not all(kind.fits for kind in best.kinds):
        needs = zip(best.kinds, pair.requests, strict=True)
        fits = [plan.memory.fit(request.pool.usable_bytes(request.pool.slots)) for plan, request in needs]
        return PlanReason("no_fit", no_fit_reason(max(fits, key=lambda fit: fit.ratio or 0.0)))
    one, other = (
        forecast_of_layout(request, plan)
        for request, plan in zip(pair.busiest(best.layout, best.shares), best.kinds, strict=True)
    )
    gang = UnlikeGang(layout=best.layout, setting=best.setting, shares=best.shares, kinds=(one, other))
    named = replace(search, settings={best.layout.name: best.kinds[0].name})
    return _chosen(pair, gang, search.bound_seconds, search=named)


def _traced(pair: GpuPair, profile: ModelProfile) -> PlanChoice | PlanReason:
    misses: list[Fit] = []
    gangs = [
        best for layout in _layouts(pair, profile) if (best := _best_of(pair, profile, layout, misses)) is not None
    ]
    if missing := next((kind.missing for gang in gangs for kind in gang.kinds if kind.step_seconds is None), ""):
        return PlanReason("lost", f"no step time: {missing}")
    if gangs:
        best = _best(pair, gangs)
        return _chosen(pair, best, _bound(pair, best))
    if misses:
        return PlanReason("no_fit", no_fit_reason(min(misses, key=lambda fit: fit.ratio or 0.0)))
    return PlanReason("unsupported", "no replicas that the line allows lie on both kinds and share its batch")


def _bound(pair: GpuPair, gang: UnlikeGang[Forecast]) -> float | None:
    """All computing at the peaks of both kinds; None: one is not known."""
    flops, peaks = gang.kinds[0].flops_per_sample, [kind.device_flops or 0.0 for kind in gang.kinds]
    if flops is None or not all(peaks):
        return None
    return pair.line.train.global_batch * flops / sum(n * peak for n, peak in zip(pair.ranks, peaks, strict=True))


def _chosen(
    pair: GpuPair, gang: UnlikeGang[Forecast], bound_seconds: float | None, *, search: SearchSummary | None = None
) -> PlanChoice:
    """The best gang of a pair as a choice of its own."""
    forecast = _gang_forecast(pair, gang)
    chosen = candidate_of(gang.layout, PlanReason("chosen", _reason(pair, gang, forecast, bound_seconds)), forecast)
    return plan_choice(
        pair.requests[0], (chosen,), micro_batch=gang.setting.micro_batch, memory=gang.setting.memory,
        forecast=forecast, holds=lambda *_: True, shares=gang.shares, search=search,
    )  # fmt: skip


def _gang_forecast(pair: GpuPair, gang: UnlikeGang[Forecast]) -> Forecast:
    """Forecast of the kind that is last done, with the memory of the fuller one, and what both cost."""
    slow = max(gang.kinds, key=lambda forecast: forecast.step_seconds or 0.0)
    rooms = [request.pool.usable_bytes(request.pool.slots) or 1.0 for request in pair.requests]
    fuller = max(range(2), key=lambda kind: (gang.kinds[kind].memory_bytes or 0) / rooms[kind])
    money = pair.money(slow)
    return replace(
        slow, memory_bytes=gang.kinds[fuller].memory_bytes, memory_causes=gang.kinds[fuller].memory_causes,
        money=None if None in money else sum(filter(None, money)), device_flops=None,
    )  # fmt: skip


def _reason(pair: GpuPair, gang: UnlikeGang[Forecast], forecast: Forecast, bound_seconds: float | None) -> str:
    """Samples, seconds and money of each kind, and what no split takes less than."""
    shares, prices = pair.by_kind(gang.layout, gang.shares), pair.money(forecast)
    parts = []
    for number, name in enumerate(pair.names):
        nodes, seconds, money = pair.kinds[number].num_nodes, gang.kinds[number].step_seconds or 0.0, prices[number]
        price = "" if money is None else f" (money {format_number(money)})"
        servers = f"{nodes} servers" if nodes > 1 else "1 server"
        parts.append(f"{servers} of {name} take {sum(shares[number])} samples in {format_step(seconds)}{price}")
    bound = "" if bound_seconds is None else f"; no split takes under {format_step(bound_seconds)}"
    return f"{', '.join(parts)}{bound}"


def _layouts(pair: GpuPair, profile: ModelProfile) -> Iterator[Layout]:
    line, nodes = pair.line, sum(kind.num_nodes for kind in pair.kinds)
    for each in STRATEGIES.values():
        is_asked = line.train.strategy in ("auto", each.name, *each.aliases)
        if not is_asked or not each.auto_order or each.layout not in ("replicas", "replicas_of_shards"):
            continue
        layout = layout_of(each.name, pair.world_size, nodes)
        if not (offload_obstacle(line, layout, "cuda") or refusal_reason(line, layout, profile)):
            yield layout


def _best_of(pair: GpuPair, profile: ModelProfile, layout: Layout, misses: list[Fit]) -> UnlikeGang[Forecast] | None:
    """The fastest passes with the fewest savings of memory that let any fit; None: none fits, and `misses` has why."""
    batch, requested = pair.line.train.global_batch, pair.line.train.mesh.micro_batch
    sizes = [divisor for divisor in divisors(batch) if divisor <= MOST_AUTO] if requested == "auto" else [requested]
    whole = whole_passes(sizes, batch, layout)
    for memory in memories(pair.line, layout, "cuda", profile):
        if memory.offload == "cpu":
            continue
        fitting = [gang for each in whole if (gang := _dealt(pair, layout, each, memory, misses)) is not None]
        if fitting:
            return min(fitting, key=lambda each: (each.step_seconds, -each.setting.micro_batch))
    return None


def _dealt(
    pair: GpuPair, layout: Layout, way: tuple[int, int], memory: Memory, misses: list[Fit]
) -> UnlikeGang[Forecast] | None:
    """So many passes of a size, dealt to both kinds; None: a rank of some kind does not hold it."""
    size, passes = way
    setting = Setting(micro_batch=size, precision=pair.requests[0].precision, memory=memory)
    first, second = (partial(_seconds, request, layout, setting) for request in pair.requests)
    replicas = replicas_of(pair.ranks, layout)
    shares = dealt_samples(layout, setting, deal_passes(passes, replicas, (first, second)), replicas)
    busiest = pair.busiest(layout, shares)
    fits = [request.fit_of(layout, size, memory) for request in busiest]
    if not all(fit.holds for fit in fits):
        misses.append(max(fits, key=lambda each: each.ratio or 0.0))
        return None
    one, other = (forecast_of(request, layout, setting, fit) for request, fit in zip(busiest, fits, strict=True))
    return UnlikeGang(layout=layout, setting=setting, shares=shares, kinds=(one, other))


def _seconds(request: PlanRequest, layout: Layout, options: Setting, passes: int) -> float:
    """Seconds of a step whose replicas all take so many passes; 0: not known."""
    asked = with_batch(request, passes * options.micro_batch * layout.mesh.data_parallel)
    return formula_of(asked, layout, options).step_seconds or 0.0
