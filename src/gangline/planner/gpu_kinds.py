"""Choice where there are several kinds of GPU: the plan of each kind, and of each two a gang of both.

Within the bounds of the line the least time (or money) wins; of what is within the band of it, the fewest kinds, then
the fewest axes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from gangline.errors import ConfigError
from gangline.planner.choice import PlanChoice, SearchSummary
from gangline.planner.contest import Contender, TimeBounds, winner
from gangline.planner.pool import has_own_rates
from gangline.planner.reasons import PlanReason, slowest_part
from gangline.planner.request import Ask, PlanRequest
from gangline.spec.config.line import Line
from gangline.spec.devices import Inventory
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Candidate, Verdict
from gangline.units import format_step


@dataclass(frozen=True, slots=True)
class KindsChoice:
    """A choice, and the devices that its gang takes: of the second kind, where there is one, as `others`."""

    choice: PlanChoice
    inventory: Inventory


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
    for each in kinds:
        name = each.device_names
        if each is not kinds[0] and not has_own_rates(request.site, name):
            refused.append(_none(each, "unsupported", f"[gpu.NAME] of site.toml does not describe {name}"))
            continue
        try:
            plans.append(_Plan((each,), choose(each)))
        except ConfigError as error:
            first_error = first_error or error
            refused.append(_none(each, "no_fit", str(error).splitlines()[0]))
    for pair in combinations(kinds, 2):
        found = unlike_gang(GpuPair.of(line, pair, ask))
        if isinstance(found, Candidate):
            refused.append(replace(found, name=f"{found.name} on {kind_names(pair)}"))
        else:
            plans.append(_Plan(pair, found))
    if not plans:
        assert first_error is not None, "a kind has a plan or an error"
        raise first_error
    return _Comparison(request, plans, refused).best()


def _none(kind: Inventory, verdict: Verdict, reason: str) -> Candidate:
    """A kind of GPU without a plan of its own."""
    world = kind.num_nodes * (kind.gpus.count if kind.gpus else 1)
    mesh = Mesh(dp_replicate=world)
    return Candidate(
        name=f"ddp-{world} on {kind.device_names}", strategy="ddp", mesh=mesh, verdict=verdict, reason=reason
    )


@dataclass(frozen=True, slots=True)
class _Plan:
    """The best on one kind, or on two."""

    kinds: tuple[Inventory, ...]
    choice: PlanChoice

    @property
    def own(self) -> Candidate:
        """The chosen one."""
        return self.choice.candidates[0]

    @property
    def name(self) -> str:
        """`fsdp-16 on h100`."""
        return f"{self.choice.name} on {kind_names(self.kinds)}"


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Plans on other devices than each other's, which all fit."""

    request: PlanRequest
    plans: Sequence[_Plan]
    refused: Sequence[Candidate]
    """Kinds and pairs without a plan."""

    def best(self) -> KindsChoice:
        """The winner with a row for each of the others."""
        best = self._best()
        rows = [self._row(each, best) for each in self.plans if each is not best]
        first, *rest = best.choice.candidates
        kind = f"; on {kind_names(best.kinds)}" if len(best.kinds) == 1 else ""
        others = sorted(rows, key=lambda each: each.forecast.step_seconds or 0.0)
        if (
            others
            and others[0].verdict in ("lost", "more_axes")
            and not any(each.verdict == "runner_up" for each in rest)
        ):
            others[0] = replace(others[0], verdict="runner_up")
        choice = replace(
            best.choice, reason=f"{best.choice.reason}{kind}", search=self._search(best),
            candidates=(replace(first, reason=f"{first.reason}{kind}"), *others, *rest, *self.refused),
        )  # fmt: skip
        return KindsChoice(choice, replace(best.kinds[0], others=best.kinds[1:]))

    def _best(self) -> _Plan:
        if self._cost(self.plans[0]) is None:
            return self.plans[0]  # most GPUs; there is nothing to compare it by
        entries = [
            Contender(
                plan=each, cost=TimeBounds.exactly(cost), axes=each.choice.mesh.num_axes, kinds=len(each.kinds),
                excess=self.request.excess(each.own.forecast),
            )
            for each in self.plans
            if (cost := self._cost(each)) is not None
        ]  # fmt: skip
        return winner(entries, band=self.request.band)

    def _cost(self, plan: _Plan) -> float | None:
        """Seconds of a step, or where money counts what a training costs, in GPU-hours where a price is missing."""
        if not self.request.counts_money:
            return plan.own.forecast.step_seconds
        have_prices = all(each.own.forecast.money is not None for each in self.plans)
        return plan.own.forecast.money if have_prices else plan.own.forecast.gpu_hours

    def _row(self, plan: _Plan, chosen: _Plan) -> Candidate:
        lost = self._why_lost(plan, chosen)
        more = f"; {plan.own.reason}" if len(plan.kinds) > 1 else ""
        return replace(plan.own, name=plan.name, verdict=lost.verdict, reason=f"{lost.words}{more}")

    def _why_lost(self, plan: _Plan, chosen: _Plan) -> PlanReason:
        """Why it is not chosen."""
        own, best, forecast = self._cost(plan), self._cost(chosen), plan.own.forecast
        if own is None or best is None:
            return PlanReason("lost", f"no step time{f': {forecast.missing}' if forecast.missing else ' to compare'}")
        over = self.request.excess(forecast)
        if over is not None and self.request.excess(chosen.own.forecast) is None:
            return PlanReason(over.kind, over.words)
        behind = f"{100 * (own / best - 1):+.1f} %"
        if own <= best * (1 + self.request.band) and len(plan.kinds) > len(chosen.kinds):
            return PlanReason("more_axes", f"{behind}: in the band, two kinds of GPU where one does")
        if self.request.counts_money:
            return PlanReason("dearer", f"{behind} dearer")
        part, seconds = slowest_part(forecast, chosen.own.forecast)
        slower = f"{part} {format_step(seconds)} longer" if seconds > 0 else "no faster"
        return PlanReason("lost", f"{behind}: {slower}")

    def _search(self, chosen: _Plan) -> SearchSummary | None:
        """The winner's, with how the plans on other kinds would be run."""
        own = chosen.choice.search
        if own is None:
            return None
        others = [(each, each.choice.search) for each in self.plans if each is not chosen]
        settings = {
            each.name: f"{search.settings.get(each.choice.name, each.choice.name)} on {kind_names(each.kinds)}"
            for each, search in others
            if search is not None
        }
        return replace(own, settings=own.settings | settings)


def kind_names(kinds: Sequence[Inventory]) -> str:
    """`h100 and a100`."""
    return replace(kinds[0], others=tuple(kinds[1:])).device_names
