"""Pipeline schedules in closed form: idle share and live micro-batches, for whole rounds of micro-batches. Pure."""

from gangline.spec.plan import PipelineSchedule


def bubble_share(schedule: PipelineSchedule, ranks: int, micro_batches: int) -> float:
    """Share of the time in which a rank waits, where stages are alike and forward and both halves of backward, too.

    Source:
        Closed forms of each order; the simulation of `planner.axes.bubble` gives the same, and tests compare them.
    """
    idle, count = ranks - 1, micro_batches
    work = {
        "gpipe": count, "1f1b": count, "interleaved_1f1b": 2 * count, "looped_bfs": 2 * count,
        "interleaved_zero_bubble": 6 * count, "zbv": 6 * count, "dualpipev": 3 * count,
    }[schedule]  # fmt: skip
    return idle / (work + idle)


def most_live(schedule: PipelineSchedule, ranks: int, rank: int, micro_batches: int) -> float:
    """Most that `rank` keeps the activations of; half a one is one of its two stages.

    Source:
        Counted in the simulation of each order (`planner.axes.bubble`), which tests repeat.
    """
    if ranks == 1:
        return 1.0
    live = {
        "1f1b": ranks - rank,
        "interleaved_1f1b": (2 * (ranks - 1 - rank) + ranks + 1) / 2,
        "interleaved_zero_bubble": ranks,
        "zbv": ranks,
        "dualpipev": ranks + 0.5,
    }
    return float(min(micro_batches, live.get(schedule, micro_batches)))


def has_closed_form(ranks: int, micro_batches: int) -> bool:
    """Whether both are exact: micro-batches come in whole rounds, and enough of them to fill a pipeline."""
    return micro_batches % ranks == 0 and micro_batches >= 2 * ranks
