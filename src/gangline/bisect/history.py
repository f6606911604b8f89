"""History between a good and a bad commit along first parents (a merge is one commit), and the culprit's changes."""

from gangline.errors import UsageError
from gangline.git.repository import Repository
from gangline.report.bisection.text import Culprit
from gangline.report.comparison.types import FileChange
from gangline.report.next_commands import bisection
from gangline.spec.bisect import BisectCommit, BisectState


def read_history(repository: Repository, good: str, bad: str) -> tuple[BisectCommit, ...]:
    """Both ends and the commits between them, oldest first; only the ends have a side.

    Args:
        repository: Repository of the commits.
        good: Full SHA of the good end.
        bad: Full SHA of the bad end.

    Raises:
        UsageError: They are one commit, or `good` is no ancestor of `bad`; the message names their merge base.
    """
    if good == bad:
        raise UsageError(f"--good and --bad are one commit, {good[:8]}; name two")
    if not repository.is_ancestor(good, bad):
        raise UsageError(_not_before(repository, good, bad))
    first = BisectCommit(sha=good, subject=repository.subject(good), parents=len(repository.parents(good)), side="good")
    later = [
        BisectCommit(sha=each.sha, subject=each.subject, parents=each.num_parents)
        for each in repository.between(good, bad)
    ]
    last = BisectCommit(sha=later[-1].sha, subject=later[-1].subject, parents=later[-1].parents, side="bad")
    return (first, *later[:-1], last)


def _not_before(repository: Repository, good: str, bad: str) -> str:
    if repository.is_ancestor(bad, good):
        return f"wanted --good before --bad, found {good[:8]} after {bad[:8]}; swap them"
    base = repository.merge_base(good, bad)
    advice = f"their merge base is {base[:8]}: is that one good? --good {base[:8]}" if base else "they share no commit"
    return f"wanted a --good that {bad[:8]} comes from, found {good[:8]} on another branch; {advice}"


PATCH_BYTES = 200_000


def read_culprit(repository: Repository, state: BisectState) -> Culprit | None:
    """Changes of the commit that was found; None if the search has not found one."""
    if state.first_bad is None:
        return None
    place = [each.sha for each in state.suspects].index(state.first_bad)
    before = state.suspects[place - 1].sha
    trees = repository.tree(before), repository.tree(state.first_bad)
    return Culprit(
        files=tuple(
            FileChange(path=path, added=plus, removed=minus) for path, plus, minus in repository.counts(*trees)
        ),
        patch=repository.patch(*trees)[:PATCH_BYTES].decode(errors="replace"),
        inside=_merge_commands(repository, state),
    )


def _merge_commands(repository: Repository, state: BisectState) -> tuple[str, ...]:
    """Commands that search inside the merge that was found, one for each branch that it merged."""
    assert state.first_bad is not None, state.id
    first, *merged = repository.parents(state.first_bad)
    starts = ((repository.merge_base(first, each), each) for each in merged)
    return tuple(bisection(state.metric, start, each) for start, each in starts if start not in (None, each))
