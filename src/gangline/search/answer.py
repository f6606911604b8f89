"""The answer of a search: its winner and the base on the same fresh seeds, compared as `gangline compare` does; and the
change of `line.toml` that it proposes.

The best of many trials is picked by luck, too, so that no value of a trial says BETTER. Both runs are runs as any
other, named by their keys: whatever kills a confirmation, the next call finds them, and none is trained twice.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from gangline.errors import ConfigError
from gangline.git.repository import Repository
from gangline.line.record.store import read_record
from gangline.report.comparison.compare import compare
from gangline.report.facts import side_of
from gangline.search.space import overrides
from gangline.spec.config.toml_text import MOST_BYTES as MOST_LINE_BYTES
from gangline.spec.config.toml_text import with_values
from gangline.spec.record import Record, run_prefix
from gangline.spec.search import Scalar, SearchAnswer, SearchRequest, SearchView, Trial, Verdict
from gangline.storage.objects.protocol import ObjectStore, get_bounded

LINE = "line.toml"
MOST_BYTES = 1 << 20
ROUND_SEEDS = 1_000
"""Fresh seeds begin at the first multiple of it above all seeds of trials."""


def confirm(view: SearchView, train: Callable[[Sequence[str]], Record], *, store: ObjectStore) -> SearchAnswer | None:
    """Train winner and base on the same fresh seeds, judge them and keep the answer; None: no trial has a value.

    `train` is `RepositoryTrials.train`: a gate's refusal of the run is an end, too.
    """
    winner, request, count = winner_of(view), view.request, view.limits.confirm_seeds
    if winner is None:
        return None
    if count:
        first = (max(_used_seeds(store, view), default=0) // ROUND_SEEDS + 1) * ROUND_SEEDS
        seeds = (f"train.seed={first}", f"evaluate.seeds={count}")
        base = train((*request.overrides, *seeds))
        this = train((*request.overrides, *overrides(winner.settings), *seeds))
        answer = judged(request, winner, base, this)
    else:
        answer = SearchAnswer(
            trial=winner.number, settings=winner.settings, verdict="unconfirmed", metric=request.metrics[0],
            reason="search.confirm_seeds = 0: it was trained on no fresh seed",
        )  # fmt: skip
    store.put(answer_key(request.project, request.id), answer.to_json())
    return answer


def winner_of(view: SearchView) -> Trial | None:
    """The best ended trial; of a Pareto front the best in the first metric."""
    numbers = view.front or (() if view.best is None else (view.best,))
    ended = [trial for trial in view.trials if trial.number in numbers and trial.values]
    sign = -1.0 if view.request.better[0] == "higher" else 1.0
    return min(ended, key=lambda trial: (sign * trial.values[0], trial.number), default=None)


def judged(request: SearchRequest, winner: Trial, base: Record, this: Record) -> SearchAnswer:
    """The verdict of `gangline compare`; BETTER also wants a searched metric beyond the band of the base's seeds.

    A gate may tolerate less than chance does, another metric may be what is better, and seeds that a program does not
    use measure no chance.
    """
    base, this = (_with_directions(record, request) for record in (base, this))
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
    number = next((compared_number for compared_number in comparison.metrics if compared_number.name == metric), None)
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
    winner = next((trial for trial in trials if trial.number == answer.trial), None)
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
    for run in (view.request.base, *(trial.run for trial in view.trials)):
        record = read_record(store, run_prefix(view.request.project, view.request.commit, run)) if run else None
        yield from record.inputs.seeds if record is not None else ()


def _with_directions(record: Record, request: SearchRequest) -> Record:
    """The record with a direction for each searched metric, which has none without a gate."""
    better = dict(zip(request.metrics, request.better, strict=True))
    metrics = {
        name: replace(metric, better=metric.better or better.get(name)) for name, metric in record.metrics.items()
    }
    return replace(record, metrics=metrics)


def _is_beyond_chance(base: Record, this: Record, name: str) -> bool:
    before, after = base.metrics.get(name), this.metrics.get(name)
    return before is not None and after is not None and side_of(after.value, before.band, before.better) == "better"


def line_of(repository: Repository, commit: str) -> str:
    """Text of the line of a commit; raises ConfigError where it has none."""
    data = repository.file(repository.tree(commit), LINE, most_bytes=MOST_LINE_BYTES)
    if data is None:
        raise ConfigError(f"wanted {LINE} in commit {commit[:8]}, found none")
    return data.decode(errors="replace")


def line_change(repository: Repository, request: SearchRequest, settings: dict[str, Scalar]) -> tuple[str, str]:
    """Text of the line before and with `settings`; raises UsageError for a layout that an edit would not keep."""
    before = line_of(repository, request.commit)
    return before, with_values(before, settings)


def proposed_change(repository: Repository, view: SearchView) -> tuple[str, str] | None:
    """The change that a BETTER answer proposes; None: there is nothing to propose, or the clone lacks the commit."""
    answer = view.answer
    if answer is None or answer.verdict != "BETTER" or not repository.has(view.request.commit):
        return None
    return line_change(repository, view.request, dict(answer.settings))
