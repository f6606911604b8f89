"""Two plans that fit, one beside the other: the words in which their times and bounds tell them apart."""

from typing import Literal

from gangline.planner.candidates import Shape
from gangline.planner.question import Question
from gangline.planner.ranking import Ranking
from gangline.units import format_step

Loss = Literal["lost", "dearer", "late", "over_budget"]


def why_first(question: Question, ranking: Ranking) -> str:
    """Why the best is another one than the first of the fixed order; empty: it is the first, or alone has a time."""
    winner, first = ranking.order[0], ranking.first
    if winner in ranking.over:
        return "no plan is within the bounds, this one comes nearest" if len(ranking.costs) > 1 else ""
    if first is None or winner == first:
        return ""
    if first in ranking.over:
        return f"within the bounds, which {first.name} is not"
    own, other = ranking.costs[winner], ranking.costs[first]
    if not own.is_clearly_below(other, question.band):
        return f"as {'cheap' if question.counts_money else 'fast'} as {first.name}, with fewer axes"
    less = f"{100 * (1 - own.most / other.most):.0f} % less"
    what = f"costs {less}" if question.counts_money else f"takes {less} time"
    return f"{what} than {first.name}, {_known(question, winner, first)}"


def why_behind(question: Question, ranking: Ranking, shape: Shape) -> tuple[Loss, str]:
    """The verdict on a loser, and what its time or its bounds say of it; empty: they say nothing."""
    winner = ranking.order[0]
    if (excess := ranking.over.get(shape)) is not None:
        return excess.kind, excess.words
    if shape not in ranking.costs:
        missing = question.formula(shape).missing
        known = question.formula(winner).step_seconds is not None and shape not in ranking.times
        return "lost", f"no step time: {missing}" if known and missing else ""
    if ranking.costs[winner].is_clearly_below(ranking.costs[shape], question.band):
        return _behind(question, ranking, shape)
    if question.pool.device != "cpu" and shape.mesh.world_size > winner.mesh.world_size:
        return "dearer", f"{shape.mesh.world_size} GPUs where {winner.mesh.world_size} are as fast"
    return "lost", ""


def closeness(question: Question, ranking: Ranking, shape: Shape) -> str:
    """How near a loser within the bounds comes to the winner; empty: nobody knows."""
    if shape not in ranking.costs or shape in ranking.over:
        return ""
    most = ranking.costs[shape].beyond(ranking.costs[ranking.order[0]])
    if abs(most) < _EQUAL:
        return "as cheap" if question.counts_money else "as fast"
    more, less = ("dearer", "cheaper") if question.counts_money else ("slower", "faster")
    winner = ranking.order[0]
    both = question.seconds(winner) is not None and question.seconds(shape) is None
    words = f"{100 * abs(most):.1f} % {more if most > 0 else less}{' by forecasts of both' if both else ''}"
    if abs(most) <= question.band:
        return f"{words}, within {100 * question.band:.0f} %"
    return f"{words} if no traffic hides"


_EQUAL = 0.0005
"""Share that no percentage shows."""


def runner_up(question: Question, ranking: Ranking) -> Shape | None:
    """The best plan but the winner that is not the same by another name; None: there is none.

    `fsdp` and `zero2` of a model without blocks are one plan: what a rank holds and how long it takes are equal.
    """
    if not ranking.order:
        return None
    winner, *others = ranking.order
    return next((shape for shape in others if not _is_same(question, shape, winner)), None)


def _is_same(question: Question, shape: Shape, winner: Shape) -> bool:
    needs = [question.fit(each).need_bytes for each in (shape, winner)]
    paces = [question.pace(each) for each in (shape, winner)]
    seconds = [None if pace is None else pace.most for pace in paces]
    return shape.mesh == winner.mesh and needs[0] is not None and _equal(*needs) and _equal(*seconds)


def _equal(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= _EQUAL * max(abs(one), abs(other))


def _behind(question: Question, ranking: Ranking, shape: Shape) -> tuple[Loss, str]:
    winner = ranking.order[0]
    more = f"{100 * ranking.costs[shape].beyond(ranking.costs[winner]):.1f} %"
    if question.counts_money:
        return "dearer", f"{more} dearer, {_known(question, shape, winner)}"
    seconds, best = question.seconds(shape), question.seconds(winner)
    if seconds is not None and best is not None:
        return "lost", f"{more} slower: {format_step(seconds)} against {format_step(best)} a step, measured"
    return "lost", f"{more} slower by forecast{_mostly(question, shape, winner)}"


def _mostly(question: Question, shape: Shape, winner: Shape) -> str:
    """The part of a step in which `shape` loses most."""
    own, other = (
        {term.part: term.seconds for term in question.formula(each).terms if term.part != "checkpoint"}
        for each in (shape, winner)
    )
    losses = {part: seconds - other.get(part, 0.0) for part, seconds in own.items()}
    part = max(losses, key=lambda each: losses[each], default="")
    return f", most of it {part}" if part and losses[part] > 0 else ""


def _known(question: Question, *shapes: Shape) -> str:
    return "measured" if all(question.seconds(shape) is not None for shape in shapes) else "by forecast"
