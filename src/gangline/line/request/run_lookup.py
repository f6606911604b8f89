"""Look-up of a run by id, commit, branch or tag, or as the base of another run."""

from pathlib import Path

from gangline.errors import UsageError
from gangline.git.repository import Repository
from gangline.line.record.runs import find_run, list_runs
from gangline.spec.record import Record
from gangline.spec.run_flags import flags_of, stopped_early
from gangline.storage.objects.protocol import ObjectStore

BASE = "base"


def look_up_run(store: ObjectStore, repo: Path, name: str) -> Record:
    """The run called `name`.

    Args:
        store: Store of the records.
        repo: Repository whose commits, branches and tags may be named.
        name: Run id or a unique beginning of one; a commit, branch or tag, for the newest of its runs, where runs of
            the plain commit go before experiments, dirty and drilled ones; `base:NAME` for the base of the run NAME.

    Raises:
        UsageError: There is none; the message says what creates one.
    """
    if name.startswith(f"{BASE}:"):
        return base_of(store, look_up_run(store, repo, name.removeprefix(f"{BASE}:")))
    try:
        return find_run(store, name)
    except UsageError as not_a_run:
        try:
            sha = Repository.at(repo).commit(name)
        except UsageError:
            raise not_a_run from None
    newest = max(list_runs(store, commit=sha), key=_preference, default=None)
    if newest is None:
        raise UsageError(f"{name} is commit {sha[:8]}, which has no run here; gangline run --commit {name} makes one")
    return newest


def base_of(store: ObjectStore, record: Record) -> Record:
    """The run that `record` was judged against; raises UsageError if it has none, or that run was deleted."""
    base = record.commit.base
    if base is None:
        raise UsageError(
            f"{record.run.id} has no base: its store had no run of an ancestor that passed;"
            " name a run or commit to compare with"
        )
    return find_run(store, base.run)


def _preference(record: Record) -> tuple[bool, bool, str]:
    """Order of preference: unflagged, then not stopped early, then newest."""
    return not flags_of(record), not stopped_early(record), record.run.created
