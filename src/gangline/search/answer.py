"""The answer of a search: its winner and the base on the same fresh seeds, compared as `gangline compare` does.

The best of many trials is picked by luck, too, so that no value of a trial says BETTER. Both runs are runs as any
other, named by their keys: whatever kills a confirmation, the next call finds them, and none is trained twice.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from gangline.line.record.store import read_record
from gangline.report.comparison.compare import compare
from gangline.report.facts import side_of
from gangline.search.space import overrides
from gangline.spec.record import Record, run_prefix
from gangline.spec.search import SearchAnswer, SearchRequest, SearchView, Trial, Verdict
from gangline.storage.objects.protocol import ObjectStore, get_bounded

MOST_BYTES = 1 << 20
ROUND_SEEDS = 1_000
"""Fresh seeds begin at the first multiple of it above all seeds of trials."""


class TrialTrainer(Protocol):
    """Trains runs of the search's commit, as its trials are trained."""

    def train(self, settings: Sequence[str]) -> Record:
        """Train the commit with these `--set` to the end, or take the run that has ended; a gate's refusal is an end.

        Raises:
            GanglineError: It has no end: no capacity, store unavailable, stopped.
        """
        ...


def confirm(view: SearchView, trainer: TrialTrainer, *, store: ObjectStore) -> SearchAnswer | None:
    """Train winner and base on the same fresh seeds, judge them and keep the answer; None: no trial has a value."""
    winner, request, count = winner_of(view), view.request, view.limits.confirm_seeds
    if winner is None:
        return None
    if count:
        first = (max(_used_seeds(store, view), default=0) // ROUND_SEEDS + 1) * ROUND_SEEDS
        seeds = (f"train.seed={first}", f"evaluate.seeds={count}")
        base = trainer.train((*request.overrides, *seeds))
        this = trainer.train((*request.overrides, *overrides(winner.settings), *seeds))
        answer = judged(request, winner, base, this)
    else:
        reason = "search.confirm_seeds = 0: it was trained on no fresh seed"
        answer = SearchAnswer(
            trial=winner.number, settings=winner.settings, verdict="unconfirmed", metric=request.metrics[0],
            reason=reason,
        )  # fmt: skip
    store.put(answer_key(request.project, request.id), answer.to_json())
    return answer


def winner_of(view: SearchView) -> Trial | None:
    """The best ended trial; of a Pareto front the best in the first metric."""
    numbers = view.front or (() if view.best is None else (view.best,))
    ended = [each for each in view.trials if each.number in numbers and each.values]
    sign = -1.0 if view.request.better[0] == "higher" else 1.0
    return min(ended, key=lambda each: (sign * each.values[0], each.number), default=None)


def judged(request: SearchRequest, winner: Trial, base: Record, this: Record) -> SearchAnswer:
    """The verdict of `gangline compare`; BETTER also wants a searched metric beyond the band of the base's seeds.

    A gate may tolerate less than chance does, another metric may be what is better, and seeds that a program does not
    use measure no chance.
    """
    base, this = (_with_directions(each, request) for each in (base, this))
    comparison = compare(base, this)
    verdict: Verdict = "unconfirmed" if comparison.outcome == "NOT COMPARABLE" else comparison.outcome
    reason = comparison.why
    bands = [each for name in request.metrics if (each := base.metrics.get(name)) is not None and each.band is not None]
    if verdict == "BETTER" and bands and all(each.band is not None and each.band.equal for each in bands):
        verdict = "unconfirmed"
        reason = "all seeds gave equal values, so nothing tells gain from luck: the program does not use its {seed}"
    elif verdict == "BETTER" and not any(_is_beyond_chance(base, this, name) for name in request.metrics):
        verdict, reason = "SAME", f"{', '.join(request.metrics)} within the band of the base's seeds"
    if winner.round:
        reason += "; trained from step 0 with the last settings of its member, which changed between rounds"
    metric = request.metrics[0]
    number = next((each for each in comparison.metrics if each.name == metric), None)
    band = base.metrics[metric].band if metric in base.metrics else None
    return SearchAnswer(
        trial=winner.number, settings=winner.settings, verdict=verdict, metric=metric,
        runs=(this.run.id, base.run.id), reason=reason, winner=number.this if number else None,
        base=band.center if band else number.base if number else None,
        band_percent=100 * abs(band.half / band.center) if band and band.center else None,
    )  # fmt: skip


def answer_key(project: str, search: str) -> str:
    """Where the answer of a search lies in the store."""
    return f"searches/{project}/{search}/answer.json"


def read_answer(store: ObjectStore, request: SearchRequest, trials: Sequence[Trial]) -> SearchAnswer | None:
    """The answer of a search, once it has one, as the records of its runs give it.

    Raises:
        IntegrityError: The object is no answer.
    """
    blob = get_bounded(store, answer_key(request.project, request.id), most_bytes=MOST_BYTES)
    if blob is None:
        return None
    answer = SearchAnswer.from_json(blob.data)
    runs = [read_record(store, run_prefix(request.project, request.commit, run)) for run in answer.runs or ()]
    winner = next((each for each in trials if each.number == answer.trial), None)
    if winner is None or winner.settings != answer.settings:
        given, whose = "unconfirmed", "its trials have no such winner"
    elif not runs or None in runs:
        given, whose = "unconfirmed", "there are no records of its runs"
    else:
        this, base = (record for record in runs if record is not None)
        given = judged(request, winner, base, this).verdict
        whose = f"the records of its runs give {given}"
    if given == answer.verdict:
        return answer
    return replace(answer, verdict="unconfirmed", reason=f"the stored answer is {answer.verdict}, and {whose}")


def _used_seeds(store: ObjectStore, view: SearchView) -> Iterator[int]:
    """Every seed that a trial, or the base of the search, was trained with."""
    for run in (view.request.base, *(each.run for each in view.trials)):
        if (
            run
            and (record := read_record(store, run_prefix(view.request.project, view.request.commit, run))) is not None
        ):
            yield from record.inputs.seeds


def _with_directions(record: Record, request: SearchRequest) -> Record:
    """The record with a direction for each searched metric, which has none without a gate."""
    better = dict(zip(request.metrics, request.better, strict=True))
    metrics = {name: replace(each, better=each.better or better.get(name)) for name, each in record.metrics.items()}
    return replace(record, metrics=metrics)


def _is_beyond_chance(base: Record, this: Record, name: str) -> bool:
    before, after = base.metrics.get(name), this.metrics.get(name)
    return before is not None and after is not None and side_of(after.value, before.band, before.better) == "better"
