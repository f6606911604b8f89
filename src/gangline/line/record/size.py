"""Size limit of a record, 256 KiB: drops first what is stored elsewhere too; never the verdict or the gates. Pure."""

from collections.abc import Callable
from dataclasses import replace

from gangline.errors import IntegrityError
from gangline.spec.measurements import RankRow
from gangline.spec.record import Record

MAX_BYTES = 256 * 1024
MAX_RANKS = 64


def fit(record: Record) -> Record:
    """The record itself if it fits, else with fewer events, ranks, candidates, paths and seeds, in that order.

    Raises:
        IntegrityError: It is still too large: a value of the line holds what belongs into a file.
    """
    for reduce in (_unreduced, *_REDUCTIONS):
        record = reduce(record)
        if len(record.to_json()) <= MAX_BYTES:
            return record
    raise IntegrityError(
        f"record of {record.run.id}: wanted at most {MAX_BYTES} bytes, found {len(record.to_json())} after thinning;"
        " keep large values in files of the repository, not in line.toml"
    )


def thin_ranks(rows: tuple[RankRow, ...], limit: int = MAX_RANKS) -> tuple[RankRow, ...]:
    """The slowest half, the fastest eighth and an even sample of the rest: at most `limit` rows, in rank order."""
    if len(rows) <= limit:
        return rows
    by_time = sorted(rows, key=lambda row: row.step_seconds or 0.0, reverse=True)
    slow, fast = limit // 2, limit // 8
    rest = by_time[slow : len(by_time) - fast]
    num_sampled = limit - slow - fast
    sample = [rest[i * len(rest) // num_sampled] for i in range(num_sampled)]
    chosen = (*by_time[:slow], *sample, *by_time[len(by_time) - fast :])
    return tuple(sorted(chosen, key=lambda row: row.rank))


def _unreduced(record: Record) -> Record:
    return record


def _last_events(count: int) -> Callable[[Record], Record]:
    return lambda record: replace(record, events=record.events[-count:])


def _few_ranks(count: int) -> Callable[[Record], Record]:
    return lambda record: replace(record, ranks=thin_ranks(record.ranks, count))


def _few_candidates(record: Record) -> Record:
    if record.plan is None:
        return record
    return replace(record, plan=replace(record.plan, candidates=record.plan.candidates[:8]))


def _few_paths(record: Record) -> Record:
    return replace(record, commit=replace(record.commit, changed=record.commit.changed[:20]))


def _few_seeds(record: Record) -> Record:
    return replace(record, curve=replace(record.curve, seed_points={}))


_REDUCTIONS = (
    _last_events(50), _few_ranks(32), _few_candidates, _few_paths, _few_ranks(16), _last_events(20), _few_seeds,
)  # fmt: skip
