"""History between a good and a bad commit along first parents (a merge is one commit), and the culprit's changes."""

from gangline.errors import UsageError
from gangline.git.repository import Repository
from gangline.report.bisection.text import Culprit
from gangline.report.comparison.types import FileChange
from gangline.spec.bisect import BisectCommit, BisectState


def read_history(repository: Repository, good: str, bad: str) -> tuple[BisectCommit, ...]:
    """Both ends and what lies between them, oldest first, nothing judged but the ends.

    Args:
        repository: Whose commits.
        good: Full name of the good end.
        bad: Full name of the bad end.

    Raises:
        UsageError: They are one commit, or `good` does not come before `bad`; where their ways part is named.
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
    met = repository.merge_base(good, bad)
    works = f"their histories part at {met[:8]}: is that one good? --good {met[:8]}" if met else "they share no commit"
    return f"wanted a --good that {bad[:8]} comes from, found {good[:8]} beside it; {works}"


PATCH_BYTES = 200_000


def read_culprit(repository: Repository, state: BisectState) -> Culprit | None:
    """None while there is no one commit."""
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
        inside=_merge_command(repository, state),
    )


def _merge_command(repository: Repository, state: BisectState) -> str | None:
    """A merge is bad as a whole; its own commits lie between where they left the line and their tip."""
    assert state.first_bad is not None, state.id
    parents = repository.parents(state.first_bad)
    if len(parents) < 2:
        return None
    left = repository.merge_base(parents[0], parents[1])
    return f"gangline bisect {state.metric} --good {left[:8]} --bad {parents[1][:8]}" if left else None
