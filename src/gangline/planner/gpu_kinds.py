"""Choice where there are several kinds of GPU: the plan of each kind, and of each two a gang of both.

Within the bounds of the line the least time (or money) wins; of what is within the band of it, the fewest kinds, then
the fewest axes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from gangline.errors import ConfigError
from gangline.planner.budget import PlanReason
from gangline.planner.choice import PlanChoice
from gangline.planner.contest import Contender, SearchSummary, TimeBounds, winner
from gangline.planner.pool import has_own_rates
from gangline.planner.reasons import slowest_part
from gangline.planner.request import Ask, PlanRequest
from gangline.spec.config.line import Line
from gangline.spec.devices import Inventory
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Candidate
from gangline.units import format_step


@dataclass(frozen=True, slots=True)
class KindsChoice:
    """A choice, and the devices that its gang takes: of the second kind, where there is one, as `others`."""

    choice: PlanChoice
    inventory: Inventory

    @property
    def own(self) -> Candidate:
        """The chosen one."""
        return self.choice.candidates[0]

    @property
    def num_kinds(self) -> int:
        """Kinds of GPU."""
        return len(self.inventory.kinds)

    @property
    def name(self) -> str:
        """`fsdp-16 on h100`."""
        return f"{self.choice.name} on {self.inventory.device_names}"


def choose_kinds(
    line: Line, inventory: Inventory, *, choose: Callable[[Inventory], PlanChoice], ask: Ask
) -> KindsChoice:
    """The best of all kinds in `inventory`; of one kind what `choose` says of it.

    Raises:
        ConfigError: As `choose` does of the first kind, where nothing fits on any.
    """
    kinds = inventory.kinds
    if len(kinds) == 1:
        return KindsChoice(choose(inventory), inventory)
    if line.federated is not None:  # members share no step, so nothing is gained from a second kind
        return KindsChoice(choose(kinds[0]), kinds[0])
    from gangline.planner.unlike_gang import GpuPair, unlike_gang  # most inventories have one kind

    request = ask(line, kinds[0])
    plans, refused, first_error = [], [], None
    for kind in kinds:
        name, world = kind.device_names, kind.num_nodes * (kind.gpus.count if kind.gpus else 1)
        if kind is not kinds[0] and not has_own_rates(request.site, name):
            lacks = PlanReason("unsupported", f"[gpu.NAME] of site.toml does not describe {name}")
            refused.append(_none(kind, world, lacks))
            continue
        try:
            plans.append(KindsChoice(choose(kind), kind))
        except ConfigError as error:
            first_error = first_error or error
            refused.append(_none(kind, world, PlanReason("no_fit", str(error).splitlines()[0])))
    for first, second in combinations(kinds, 2):
        pair, both = GpuPair.of(line, (first, second), ask), replace(first, others=(second,))
        found = unlike_gang(pair)
        if isinstance(found, PlanReason):
            refused.append(_none(both, pair.world_size, found))
        else:
            plans.append(KindsChoice(found, both))
    if not plans:
        assert first_error is not None, "a kind has a plan or an error"
        raise first_error
    return _best(request, plans, refused)


def _none(devices: Inventory, world: int, reason: PlanReason) -> Candidate:
    """A kind of GPU, or two of them with `world` GPUs, without a plan."""
    return Candidate(
        name=f"ddp-{world} on {devices.device_names}", strategy="ddp", mesh=Mesh(dp_replicate=world),
        verdict=reason.verdict, reason=reason.words,
    )  # fmt: skip


def _best(request: PlanRequest, plans: Sequence[KindsChoice], refused: Sequence[Candidate]) -> KindsChoice:
    """The winner of plans that all fit, with a row for each of the others, and for kinds and pairs without a plan."""
    best = _winner(request, plans)
    losers = [plan for plan in plans if plan is not best]
    rows = [_row(request, loser, best, _costs(request, plans, loser, best)) for loser in losers]
    others = sorted(rows, key=lambda row: row.forecast.step_seconds or 0.0)
    first, *rest = best.choice.candidates
    kind = f"; on {best.inventory.device_names}" if best.num_kinds == 1 else ""
    is_second = bool(others) and others[0].verdict in ("lost", "more_axes")
    if is_second and not any(candidate.verdict == "runner_up" for candidate in rest):
        others[0] = replace(others[0], verdict="runner_up")
    choice = replace(
        best.choice, reason=f"{best.choice.reason}{kind}", search=_search(best, losers),
        candidates=(replace(first, reason=f"{first.reason}{kind}"), *others, *rest, *refused),
    )  # fmt: skip
    return KindsChoice(choice, best.inventory)


def _winner(request: PlanRequest, plans: Sequence[KindsChoice]) -> KindsChoice:
    costs = _costs(request, plans, *plans)
    if costs[0] is None:
        return plans[0]  # most GPUs; there is nothing to compare it by
    entries = [
        Contender(
            plan=plan, cost=TimeBounds.exactly(cost), axes=plan.choice.mesh.num_axes, kinds=plan.num_kinds,
            excess=request.excess(plan.own.forecast),
        )
        for plan, cost in zip(plans, costs, strict=True)
        if cost is not None
    ]  # fmt: skip
    return winner(entries, band=request.band)


def _costs(request: PlanRequest, plans: Sequence[KindsChoice], *wanted: KindsChoice) -> list[float | None]:
    """Seconds of a step, or where money counts what a training costs, in GPU-hours where a price is missing."""
    have_prices = all(plan.own.forecast.money is not None for plan in plans)
    name = "step_seconds" if not request.counts_money else "money" if have_prices else "gpu_hours"
    return [getattr(choice.own.forecast, name) for choice in wanted]


def _row(request: PlanRequest, plan: KindsChoice, chosen: KindsChoice, costs: Sequence[float | None]) -> Candidate:
    lost = _why_lost(request, plan, chosen, costs)
    more = f"; {plan.own.reason}" if plan.num_kinds > 1 else ""
    return replace(plan.own, name=plan.name, verdict=lost.verdict, reason=f"{lost.words}{more}")


def _why_lost(
    request: PlanRequest, plan: KindsChoice, chosen: KindsChoice, costs: Sequence[float | None]
) -> PlanReason:
    """Why it is not chosen; costs are those of both."""
    (own, best), forecast = costs, plan.own.forecast
    if own is None or best is None:
        return PlanReason("lost", f"no step time{f': {forecast.missing}' if forecast.missing else ' to compare'}")
    over = request.excess(forecast)
    if over is not None and request.excess(chosen.own.forecast) is None:
        return over
    behind = f"{100 * (own / best - 1):+.1f} %"
    if own <= best * (1 + request.band) and plan.num_kinds > chosen.num_kinds:
        return PlanReason("more_axes", f"{behind}: in the band, two kinds of GPU where one does")
    if request.counts_money:
        return PlanReason("dearer", f"{behind} dearer")
    part, seconds = slowest_part(forecast, chosen.own.forecast)
    slower = f"{part} {format_step(seconds)} longer" if seconds > 0 else "no faster"
    return PlanReason("lost", f"{behind}: {slower}")


def _search(chosen: KindsChoice, others: Sequence[KindsChoice]) -> SearchSummary | None:
    """The winner's, with how the plans on other kinds would be run."""
    own = chosen.choice.search
    if own is None:
        return None
    settings = {
        other.name: f"{search.settings.get(other.choice.name, other.choice.name)} on {other.inventory.device_names}"
        for other in others
        if (search := other.choice.search) is not None
    }
    return replace(own, settings=own.settings | settings)
