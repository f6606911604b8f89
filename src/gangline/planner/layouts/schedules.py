"""Pipeline schedules: the order of forward and backward actions of each rank, for seven schedules. Pure."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Literal, NamedTuple

from gangline.spec.plan import V_SCHEDULES, PipelineSchedule

Kind = Literal["F", "B", "I", "W"]

SINGLE: frozenset[PipelineSchedule] = frozenset({"gpipe", "1f1b"})
"""Schedules with one stage a rank; all others have two."""


SPLIT: frozenset[PipelineSchedule] = frozenset({"interleaved_zero_bubble", "zbv", "dualpipev"})
"""Schedules that compute gradients of inputs and of weights at different times."""


class Action(NamedTuple):
    """A forward (F) or backward (B) of one micro-batch on one stage; I and W are the gradients of inputs and of
    weights."""

    kind: Kind
    stage: int
    micro_batch: int


Step = tuple[Action, ...]
"""One action, or a forward and a backward at once."""


def num_stages(schedule: PipelineSchedule, ranks: int) -> int:
    """Stages of a pipeline of `ranks` ranks."""
    return ranks if schedule in SINGLE else 2 * ranks


def stages_of(schedule: PipelineSchedule, ranks: int, rank: int) -> tuple[int, ...]:
    """Stages of one rank, in ascending order: `r` and `r + P`, or `r` and `2P - 1 - r` where they turn at the end."""
    if schedule in SINGLE:
        return (rank,)
    return (rank, 2 * ranks - 1 - rank if schedule in V_SCHEDULES else ranks + rank)


def owner_of(schedule: PipelineSchedule, ranks: int, stage: int) -> int:
    """Rank that holds `stage`."""
    if stage < ranks:
        return stage
    return 2 * ranks - 1 - stage if schedule in V_SCHEDULES else stage - ranks


def orders(schedule: PipelineSchedule, ranks: int, micro_batches: int) -> list[list[Step]]:
    """Steps of every rank; `require_schedule` says which numbers work."""
    return [list(_ORDERS[schedule](ranks, rank, micro_batches)) for rank in range(ranks)]


def _gpipe(ranks: int, rank: int, count: int) -> Iterator[Step]:
    del ranks
    for kind in ("F", "B"):
        yield from ((Action(kind, rank, each),) for each in range(count))


def _one_forward_one_backward(ranks: int, rank: int, count: int) -> Iterator[Step]:
    forwards = [Action("F", rank, each) for each in range(count)]
    backwards = [Action("B", rank, each) for each in range(count)]
    yield from _alternate(forwards, backwards, ahead=ranks - 1 - rank)


def _looped_bfs(ranks: int, rank: int, count: int) -> Iterator[Step]:
    stages = (rank, ranks + rank)
    yield from ((Action("F", stage, each),) for stage in stages for each in range(count))
    yield from ((Action("B", stage, each),) for stage in reversed(stages) for each in reversed(range(count)))


def _interleaved(ranks: int, rank: int, count: int) -> Iterator[Step]:
    forwards, backwards = _rounds(ranks, rank, count, "B")
    yield from _alternate(forwards, backwards, ahead=per_round(ranks, count) + 2 * (ranks - 1 - rank))


def _interleaved_zero_bubble(ranks: int, rank: int, count: int) -> Iterator[Step]:
    """Interleaved with one forward less ahead for each rank; weights follow `rank` actions behind their inputs."""
    forwards, inputs = _rounds(ranks, rank, count, "I")
    weights = iter([action._replace(kind="W") for action in inputs])
    done = 0
    for step in _alternate(forwards, inputs, ahead=per_round(ranks, count) + ranks - 1 - rank):
        yield step
        done += step[0].kind == "I"
        if step[0].kind == "I" and done > rank:
            yield (next(weights),)
    yield from ((weight,) for weight in weights)


def per_round(ranks: int, count: int) -> int:
    """Micro-batches that an interleaved rank takes through one of its stages before it turns to the other."""
    return count // max(1, count // ranks)


def _rounds(ranks: int, rank: int, count: int, backward: Kind) -> tuple[list[Action], list[Action]]:
    size, stages = per_round(ranks, count), (rank, ranks + rank)
    rounds = [range(start, start + size) for start in range(0, count, size)]
    forwards = [Action("F", stage, each) for those in rounds for stage in stages for each in those]
    backwards = [Action(backward, stage, each) for those in rounds for stage in stages[::-1] for each in those]
    return forwards, backwards


def _alternate(forwards: Sequence[Action], backwards: Sequence[Action], *, ahead: int) -> Iterator[Step]:
    """`ahead` forwards, then one and one in turn, then what backwards are left."""
    ahead = min(ahead, len(forwards))
    pairs = zip(forwards[ahead:], backwards, strict=False)
    for action in chain(forwards[:ahead], chain.from_iterable(pairs), backwards[len(forwards) - ahead :]):
        yield (action,)


class _MicroBatchQueue:
    """Gives the next micro-batch of each stage of one rank of a V; stage 0 runs down, stage 1 up."""

    def __init__(self, ranks: int, rank: int) -> None:
        self._stages = (rank, 2 * ranks - 1 - rank)
        self.taken: Counter[tuple[str, int]] = Counter()
        self._owed: list[Action] = []

    def __call__(self, kind: Kind, half: int) -> Action:
        action = Action(kind, self._stages[half], self.taken[kind, half])
        self.taken[kind, half] += 1
        return action

    def backward(self, kind: Kind, half: int) -> Action:
        """B or I, which count together; the W that an I leaves is owed."""
        action = self("B", half)._replace(kind=kind)
        if kind == "I":
            self._owed.append(action._replace(kind="W"))
        return action

    def owed(self) -> Iterator[Step]:
        """The oldest W that is owed, if any is."""
        if self._owed:
            yield (self._owed.pop(0),)


def _zbv(ranks: int, rank: int, count: int) -> Iterator[Step]:
    most = max(2 * ranks - 1, count)  # what fills the V; actions of micro-batches that are not there are left out
    return ((action,) for action in _full_zbv(ranks, rank, most) if action.micro_batch < count)


def _full_zbv(ranks: int, rank: int, count: int) -> Iterator[Action]:
    queue = _MicroBatchQueue(ranks, rank)
    up = 0
    for _ in range(2 * (ranks - rank) - 1):
        yield queue("F", 0)
    for half in (1, 0) * rank:
        yield queue("F", half)
    for _ in range(ranks - rank):
        yield from (queue("F", 1), queue("I", 1), queue("W", 1))
    while (up := queue.taken["F", 1]) < queue.taken["F", 0] or queue.taken["F", 0] < count:
        if queue.taken["F", 0] < count:
            yield queue("F", 0)
        yield from (queue("I", 0), queue("W", 0), queue("F", 1), queue("I", 1), queue("W", 1))
    for half in (0, 1) * rank:
        yield queue("I", half)
    for _ in range(ranks - rank):
        yield from (queue("I", 0), queue("W", 0))
    for half in (1, 0):
        while queue.taken["W", half] < max(up, count):
            yield queue("W", half)


def _dualpipev(ranks: int, rank: int, count: int) -> Iterator[Step]:
    queue, below = _MicroBatchQueue(ranks, rank), ranks - rank - 1
    yield from _dualpipev_fill(queue, rank, below)
    for number in range(count - 2 * ranks + rank + 1):
        pair = (queue("F", 0), queue.backward("B", 1))
        yield from ((action,) for action in pair) if number == 0 and not below else (pair,)
        yield (queue("F", 1), queue.backward("B", 0))
    for _ in range(below):
        yield (queue.backward("B", 1),)
        yield (queue("F", 1), queue.backward("B", 0))
    yield from _dualpipev_drain(queue, rank, below)


def _dualpipev_fill(queue: _MicroBatchQueue, rank: int, below: int) -> Iterator[Step]:
    for _ in range(2 * below):
        yield (queue("F", 0),)
    for half in (0, 1) * (rank + 1):
        yield (queue("F", half),)
    for _ in range(below):
        yield (queue.backward("I", 1),)
        yield from queue.owed()
        yield (queue("F", 1),)


def _dualpipev_drain(queue: _MicroBatchQueue, rank: int, below: int) -> Iterator[Step]:
    """The later half of the last backwards leave their weights for the time in which others still work."""
    for number in range(2 * (rank + 1)):
        yield (queue.backward("I" if number > rank else "B", 1 - number % 2),)
    for _ in range(below):
        yield from queue.owed()
        yield (queue.backward("I", 0),)
    for _ in range(rank + 1):
        yield from queue.owed()


_ORDERS: dict[PipelineSchedule, Callable[[int, int, int], Iterator[Step]]] = {
    "gpipe": _gpipe,
    "1f1b": _one_forward_one_backward,
    "interleaved_1f1b": _interleaved,
    "looped_bfs": _looped_bfs,
    "interleaved_zero_bubble": _interleaved_zero_bubble,
    "zbv": _zbv,
    "dualpipev": _dualpipev,
}
