"""Earlier runs of a commit and its ancestors: the base of comparison, and the runs whose stages may be reused.

The base is the nearest ancestor with a run that passed, at most 50 commits back. A run with an injected fault is
neither: its training must not be published under another run's name. Nor is a record whose seal is invalid. An
experiment (keys set on the command line) and a run of a dirty tree are no base: their commit would do something else.
Of several runs of one commit the newest with a noise band is the base: without a band nothing can be judged.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gangline.git.repository import Repository
from gangline.line.record.runs import list_runs
from gangline.spec.record import Record
from gangline.spec.run_flags import flags_of, stopped_early, was_drilled
from gangline.storage.objects.protocol import ObjectStore

MAX_BACK = 50
MAX_REUSABLE = 20


@dataclass(frozen=True, slots=True)
class EarlierRuns:
    """What came before a run."""

    base: Record | None
    reusable: tuple[Record, ...]
    """Runs whose stages may be taken, nearest first; the base among them."""


def find_earlier_runs(
    store: ObjectStore, repository: Repository, *, project: str, commit: str, run: str, holds: Callable[[Record], bool]
) -> EarlierRuns:
    """The past of a run of `commit`; its own record is not part of it, nor one that does not hold."""
    reusable = [each for each in reusable_runs(store, project, commit) if each.run.id != run and holds(each)]
    for ancestor in repository.ancestors(commit, MAX_BACK):
        of_ancestor = list(filter(holds, reusable_runs(store, project, ancestor)))
        reusable += of_ancestor
        passed = [each for each in of_ancestor if _is_base(each)]
        if passed:
            return EarlierRuns(max(passed, key=_usefulness), tuple(reusable[:MAX_REUSABLE]))
    return EarlierRuns(None, tuple(reusable[:MAX_REUSABLE]))


def _is_base(record: Record) -> bool:
    return record.run.verdict == "passed" and not stopped_early(record) and not flags_of(record)


def _usefulness(record: Record) -> tuple[bool, str, str]:
    has_band = any(metric.band is not None for metric in record.metrics.values())
    return has_band, record.run.created, record.run.id


def reusable_runs(store: ObjectStore, project: str, commit: str) -> Iterator[Record]:
    """Read one by one; neither drilled nor of a fork: nobody takes what a stranger's code has written."""
    for each in list_runs(store, project=project, commit=commit):
        if each.commit.trust == "own" and not was_drilled(each):
            yield each
