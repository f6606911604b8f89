"""Reasons of a choice: one sentence for each plan, with its numbers, and the verdict that it is about."""

from gangline.errors import ConfigError
from gangline.planner.budget import PlanReason
from gangline.planner.candidates import Ranking
from gangline.planner.cost.memory import state_bytes
from gangline.planner.layouts.layout import Layout, program_decides
from gangline.planner.request import PlanRequest
from gangline.planner.settings import Fit, line_memory
from gangline.spec.forecast import Forecast
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Candidate, Memory
from gangline.spec.profile import ModelProfile
from gangline.spec.strategies import COPIES, ONE_RANK
from gangline.units import format_bytes, format_count, format_step


def candidate_of(layout: Layout, reason: PlanReason, forecast: Forecast) -> Candidate:
    """The row of a layout by the name that people see."""
    return Candidate(
        name=layout.name, strategy=layout.strategy, mesh=layout.mesh, verdict=reason.verdict, reason=reason.words,
        forecast=forecast,
    )  # fmt: skip


def _win_words(request: PlanRequest, ranking: Ranking) -> str:
    """Why the best is another one than the first of the fixed order; empty: it is the first, or alone has a time."""
    winner, first = ranking.order[0], ranking.first
    if winner in ranking.over:
        return "no plan is within the bounds, this one comes nearest" if len(ranking.costs) > 1 else ""
    if first is None or winner == first:
        return ""
    if first in ranking.over:
        return f"within the bounds, which {first.name} is not"
    own, other = ranking.costs[winner], ranking.costs[first]
    if not own.is_clearly_below(other, request.band):
        return f"as {'cheap' if request.counts_money else 'fast'} as {first.name}, with fewer axes"
    less = f"{100 * (1 - own.most / other.most):.0f} % less"
    what = f"costs {less}" if request.counts_money else f"takes {less} time"
    return f"{what} than {first.name}, {_known(request, winner, first)}"


def why_lost(request: PlanRequest, ranking: Ranking, layout: Layout) -> PlanReason:
    """Reason of a plan that fits: what its bounds or its time say, else how near it comes and how it is less simple."""
    winner = ranking.order[0]
    if (reason := _by_numbers(request, ranking, layout)) is not None:
        return reason
    plain = _by_simplicity(request, layout, winner)
    margin = _margin_words(request, ranking, layout)
    return PlanReason(plain.verdict, f"{margin}; {plain.words}" if margin else plain.words)


def _by_numbers(request: PlanRequest, ranking: Ranking, layout: Layout) -> PlanReason | None:
    """What bounds and times say of a loser; None: they do not tell it from the winner."""
    winner = ranking.order[0]
    if (excess := ranking.over.get(layout)) is not None:
        return excess
    if layout not in ranking.costs:
        missing = request.formula(layout).missing
        known = request.formula(winner).step_seconds is not None and layout not in ranking.times
        return PlanReason("lost", f"no step time: {missing}") if known and missing else None
    if ranking.costs[winner].is_clearly_below(ranking.costs[layout], request.band):
        return _share_slower(request, ranking, layout)
    if request.pool.device != "cpu" and layout.mesh.world_size > winner.mesh.world_size:
        return PlanReason("dearer", f"{layout.mesh.world_size} GPUs where {winner.mesh.world_size} are as fast")
    return None


def _margin_words(request: PlanRequest, ranking: Ranking, layout: Layout) -> str:
    """How near a loser within the bounds comes to the winner; empty: that is not known."""
    if layout not in ranking.costs or layout in ranking.over:
        return ""
    most = ranking.costs[layout].beyond(ranking.costs[ranking.order[0]])
    if abs(most) < _EQUAL:
        return "as cheap" if request.counts_money else "as fast"
    more, less = ("dearer", "cheaper") if request.counts_money else ("slower", "faster")
    winner = ranking.order[0]
    both = request.seconds(winner) is not None and request.seconds(layout) is None
    words = f"{100 * abs(most):.1f} % {more if most > 0 else less}{' by forecasts of both' if both else ''}"
    if abs(most) <= request.band:
        return f"{words}, within {100 * request.band:.0f} %"
    return f"{words} if no traffic hides"


_EQUAL = 0.0005
"""Share that no percentage shows."""


def runner_up(request: PlanRequest, ranking: Ranking) -> Layout | None:
    """The best plan but the winner that is not the same by another name; None: there is none.

    `fsdp` and `zero2` of a model without blocks are one plan: what a rank holds and how long it takes are equal.
    """
    if not ranking.order:
        return None
    winner, *others = ranking.order
    return next((layout for layout in others if not _is_same(request, layout, winner)), None)


def _is_same(request: PlanRequest, layout: Layout, winner: Layout) -> bool:
    needs = [request.fit(each).need_bytes for each in (layout, winner)]
    seconds = [request.formula(each).step_seconds for each in (layout, winner)]
    return layout.mesh == winner.mesh and needs[0] is not None and _equal(*needs) and _equal(*seconds)


def _equal(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= _EQUAL * max(abs(one), abs(other))


def _share_slower(request: PlanRequest, ranking: Ranking, layout: Layout) -> PlanReason:
    winner = ranking.order[0]
    more = f"{100 * ranking.costs[layout].beyond(ranking.costs[winner]):.1f} %"
    if request.counts_money:
        return PlanReason("dearer", f"{more} dearer, {_known(request, layout, winner)}")
    seconds, best = request.seconds(layout), request.seconds(winner)
    if seconds is not None and best is not None:
        return PlanReason("lost", f"{more} slower: {format_step(seconds)} against {format_step(best)} a step, measured")
    part, lost = slowest_part(request.formula(layout), request.formula(winner))
    return PlanReason("lost", f"{more} slower by forecast{f', most of it {part}' if lost > 0 else ''}")


def slowest_part(own: Forecast, best: Forecast) -> tuple[str, float]:
    """The part of a step in which `own` loses most to `best`, and seconds; none above 0: it loses in no part."""
    other = {term.part: term.seconds for term in best.terms}
    losses = {term.part: term.seconds - other.get(term.part, 0.0) for term in own.terms if term.part != "checkpoint"}
    return max(losses.items(), key=lambda each: each[1], default=("", 0.0))


def _known(request: PlanRequest, *shapes: Layout) -> str:
    return "measured" if all(request.seconds(layout) is not None for layout in shapes) else "by forecast"


def chosen_reason(request: PlanRequest, ranking: Ranking) -> str:
    """Why the best won: as the only one, or by its numbers over the first of the fixed order. What was not known is
    said, too, and what was given up for memory beyond what the line asks for."""
    line, setting = request.line, request.setting(ranking.order[0])
    if program_decides(line):
        return "the program decides how"
    is_asked = line.train.strategy != "auto"
    reason = "as the line asks" if is_asked else _win_words(request, ranking) or _why(request, ranking)
    more = [_memory_savings_words(setting.memory, line_memory(line)), _unknown(setting.fit, request.profile)]
    return "; ".join([reason, *(each for each in more if each)])


def _memory_savings_words(memory: Memory, other: Memory) -> str:
    """How `memory` saves bytes at the cost of time where the other does not; empty: in no way."""
    again = {"none": "", "full": "recomputes all blocks", "selective": "recomputes what is cheap"}
    word = memory.activation_checkpointing
    words = [
        again.get(word, f"recomputes blocks ({word})") if word != other.activation_checkpointing else "",
        f"loss in {memory.loss_chunks} pieces" if memory.loss_chunks != other.loss_chunks else "",
        "gradients reduced after each pass" if memory.gradient_sync == "each" != other.gradient_sync else "",
        "shards wait on the host" if memory.offload == "cpu" != other.offload else "",
    ]
    return ", ".join(each for each in words if each)


def _by_simplicity(request: PlanRequest, layout: Layout, winner: Layout) -> PlanReason:
    """Why `layout`, which fits, lost to `winner` where times do not tell."""
    own, other = request.setting(layout), request.setting(winner)
    if layout.traits is ONE_RANK:
        return PlanReason("lost", f"one rank of {winner.mesh.world_size}: the others stay idle")
    if own.effort > other.effort:
        savings = _memory_savings_words(own.memory, other.memory) or "computes more again"
        return PlanReason("lost", f"spends more time on saving memory: {savings}")
    if layout.num_axes > winner.num_axes:
        return more_axes(layout.num_axes, winner.num_axes)
    return PlanReason("lost", _more_traffic(layout.mesh, winner.mesh) or _of_copies(layout, winner))


def more_axes(axes: int, least: int, before: str = "") -> PlanReason:
    """Why a plan that is no slower lost: it takes more axes of ranks; `before` comes first in the sentence."""
    return PlanReason("more_axes", f"{before}{axes} axes where {least} {'does' if least == 1 else 'do'}")


def _more_traffic(mesh: Mesh, least: Mesh) -> str:
    tp, pp = (f" where {count} do" if count > 1 else "" for count in (least.tp, least.pp))
    rules = (
        (mesh.tp > least.tp, f"{mesh.tp} peers exchange in every block{tp}"),
        (mesh.cp > least.cp, f"{mesh.cp} peers hand keys and values around in every block"),
        (mesh.ep > least.ep, "rows go to experts of other ranks and back in every block"),
        (mesh.pp > least.pp, f"{mesh.pp} stages wait for each other{pp}"),
        (mesh.world_size < least.world_size, f"{mesh.world_size} ranks where {least.world_size} work"),
    )
    return next((words for applies, words in rules if applies), "")


def _of_copies(layout: Layout, winner: Layout) -> str:
    own = layout.traits.wrapping
    if own and own.shares_optimizer:
        return "averages gradients and also sends out new parameters"
    if own and own.shards and not own.reshards and winner.traits is not COPIES:
        return "holds parameters whole from forward to backward"
    if layout.traits.layout == "shards":
        return "gathers parameters at each step" if winner.traits is COPIES else "gathers parameters across nodes"
    return f"{layout.strategy} is no simpler than {winner.name}"


def no_fit_reason(fit: Fit) -> str:
    """Need of a rank, its largest cause, and what a rank may hold."""
    need, has = format_bytes(fit.need_bytes or 0), format_bytes(fit.usable_bytes or 0)
    return f"no fit: a rank needs {need} ({fit.cause}), it may hold {has}"


def refuse_all(request: PlanRequest, ranking: Ranking, change: str) -> ConfigError:
    """Nothing fits: the two nearest misses, and the smallest `change` that would do; empty: none was found."""
    pool, profile, moment_bytes = request.pool, request.profile, request.optimizer.moment_bytes
    misses = [(layout, request.fit(layout)) for layout in ranking.too_large]
    nearest = sorted(misses, key=lambda miss: miss[1].ratio or 0)[:2]
    needs = [
        f"{layout.name} needs {fit.ratio or 0:.1f} times what a rank may hold ({fit.cause})" for layout, fit in nearest
    ]
    parameters = profile.parameters if profile else 0
    state = state_bytes(profile, moment_bytes) if profile else 0
    least = nearest[0][1].usable_bytes or 0
    return ConfigError(
        f"plan: wanted room for a state of {format_bytes(state)} ({format_count(parameters)} "
        f"parameters x {8 + moment_bytes:g} bytes), found {pool.size} x {format_bytes(least)} usable: "
        f"{'; '.join(needs)}; {change or 'larger devices are needed'}"
    )


def _why(request: PlanRequest, ranking: Ranking) -> str:
    layout, profile = ranking.order[0], request.profile
    fit = request.fit(layout)
    if layout.traits is ONE_RANK:
        if len(ranking.runnable) + len(ranking.unsupported) == 1:
            return "one rank has nothing to share"
        return "only a single rank fits: several copies or pieces need more than is there"
    if layout.traits is COPIES:
        return "fits every rank whole, nothing to shard" if fit.ratio is not None else "one axis, one all-reduce a step"
    if layout.mesh.tp * layout.mesh.pp * layout.mesh.cp > 1:
        return "sharing data alone does not fit: " + _cuts(layout.mesh)
    state = state_bytes(profile, request.optimizer.moment_bytes) if profile else None
    whole = Fit(state, fit.usable_bytes).ratio
    return "spends less time on saving memory than copies" if whole is None or whole <= 1 else _of_shards(layout, whole)


def _of_shards(layout: Layout, whole: float) -> str:
    """Why the state, which fills `whole` devices, is shared so."""
    if layout.traits.layout == "replicas_of_shards":
        return f"needs {whole:.1f} times one device, a node holds it: shards stay inside, gradients cross"
    if layout.wrapping.shares_optimizer:
        return f"needs {whole:.1f} times one device, and without the others' moments it fits"
    parts = layout.mesh.dp_shard
    return f"needs {whole:.1f} times one device, over {parts} it takes {whole / parts:.1f}"


def _cuts(mesh: Mesh) -> str:
    words = [
        f"{mesh.tp} peers share each layer" if mesh.tp > 1 else "",
        f"{mesh.cp} peers share each sequence" if mesh.cp > 1 else "",
        f"{mesh.pp} stages share the blocks" if mesh.pp > 1 else "",
        f"{mesh.dp_shard} shards the rest" if mesh.dp_shard > 1 else "",
    ]
    return ", ".join(word for word in words if word)


def _unknown(fit: Fit, profile: ModelProfile | None) -> str:
    if profile is None:
        return "size of the model not known"
    if fit.usable_bytes is None:
        return "memory of the devices not known"
    if profile.untraced:
        return "activations not known"  # the forecast says why
    return "" if profile.traces or profile.activation_bytes_per_sample else "activations not known yet"
