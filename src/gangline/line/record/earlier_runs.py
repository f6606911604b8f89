"""Earlier runs of a commit and its ancestors: the base of comparison, and the runs whose stages may be reused.

The base is the nearest ancestor with a run that passed, at most 50 commits back. Of a merge commit that is one of its
own branch (first parents): a merged branch, which may lack what its own had since, is asked only where that has none. A
run with an injected fault is neither: its training must not be published under another run's name. Nor is a record
whose seal is invalid. An experiment (keys set on the command line) or a run of a dirty tree is no base, because its
commit alone would give another result. Nor is the run of another line of the repository that has this project's name.
Of several runs of one commit the newest with a noise band is the base, because values are judged by a band.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gangline.git.repository import Repository
from gangline.line.record.runs import OnRefused, list_runs, log_refused
from gangline.spec.record import Record
from gangline.spec.run_flags import flags_of, may_publish, stage, stopped_early, was_drilled
from gangline.storage.objects.protocol import ObjectStore

MAX_BACK = 50
MAX_REUSABLE = 20


@dataclass(frozen=True, slots=True)
class EarlierRuns:
    """Runs before a run."""

    base: Record | None
    reusable: tuple[Record, ...]
    """Runs whose stages may be reused, nearest first; includes the base."""

    def with_stage(self, name: str, key: str, *, taker: Record) -> Iterator[Record]:
        """Runs whose stage `name` has a result and this key, and may be taken by `taker`, nearest first."""
        return (record for record in self._with_stage(name, key) if may_take(taker, record))

    def refused_with_stage(self, name: str, key: str, *, taker: Record) -> Record | None:
        """The nearest run that has such a result, which `taker` may not take."""
        return next((record for record in self._with_stage(name, key) if not may_take(taker, record)), None)

    def _with_stage(self, name: str, key: str) -> Iterator[Record]:
        for record in self.reusable:
            info = stage(record, name)
            if info.key == key and info.state in {"done", "taken"}:
                yield record


def may_take(taker: Record, earlier: Record) -> bool:
    """Whether a run may take results of an earlier one.

    One that may be published takes none of a run that may not and had a home on a machine: experiments, dirty trees and
    other commits of its branch could leave something there. Pods begin with empty homes.
    """
    return not may_publish(taker) or may_publish(earlier) or earlier.run.launcher.has_pods


def find_earlier_runs(
    store: ObjectStore, repository: Repository, *, project: str, commit: str, run: str, holds: Callable[[Record], bool]
) -> EarlierRuns:
    """Runs of `commit` and its ancestors, without `run` itself; `holds` verifies the seal of a record."""
    same = (commit, *repository.parents(commit)[1:])  # a merge often has the files of what was merged
    own = (reusable_run for one in same for reusable_run in reusable_runs(store, project, one))
    reusable = [record for record in own if record.run.id != run and holds(record)]
    for ancestor in repository.ancestors(commit, MAX_BACK):
        of_ancestor = list(filter(holds, reusable_runs(store, project, ancestor)))
        reusable += of_ancestor
        passed = [record for record in of_ancestor if _is_base(record) and _is_of_this_line(repository, record)]
        if passed:
            return EarlierRuns(max(passed, key=_base_order), tuple(reusable[:MAX_REUSABLE]))
    return EarlierRuns(None, tuple(reusable[:MAX_REUSABLE]))


def _is_base(record: Record) -> bool:
    return record.run.verdict == "passed" and not stopped_early(record) and not flags_of(record)


def _is_of_this_line(repository: Repository, record: Record) -> bool:
    """It built the folder of this line as it was in its commit, or that folder was elsewhere then."""
    return repository.tree_if_any(record.commit.sha) in (None, record.commit.tree)


def _base_order(record: Record) -> tuple[bool, str, str]:
    has_band = any(metric.band is not None for metric in record.metrics.values())
    return has_band, record.run.created, record.run.id


def reusable_runs(
    store: ObjectStore, project: str, commit: str, *, on_refused: OnRefused = log_refused
) -> Iterator[Record]:
    """Runs of a commit, without drilled runs and without those of forks, whose results no other run may use."""
    for run in list_runs(store, project=project, commit=commit, on_refused=on_refused):
        if run.commit.trust == "own" and not was_drilled(run):
            yield run
