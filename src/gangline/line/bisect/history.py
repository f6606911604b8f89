"""The row of commits from a good one to a bad one, as git tells it: along first parents, so a merge is one commit."""

from gangline.errors import UsageError
from gangline.line.git import Repository
from gangline.spec.bisect import Suspect


def read_history(repository: Repository, good: str, bad: str) -> tuple[Suspect, ...]:
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
    first = Suspect(sha=good, subject=repository.subject(good), parents=len(repository.parents(good)), side="good")
    later = [
        Suspect(sha=each.sha, subject=each.subject, parents=each.num_parents) for each in repository.between(good, bad)
    ]
    last = Suspect(sha=later[-1].sha, subject=later[-1].subject, parents=later[-1].parents, side="bad")
    return (first, *later[:-1], last)


def _not_before(repository: Repository, good: str, bad: str) -> str:
    if repository.is_ancestor(bad, good):
        return f"wanted --good before --bad, found {good[:8]} after {bad[:8]}; swap them"
    met = repository.merge_base(good, bad)
    works = f"their histories part at {met[:8]}: is that one good? --good {met[:8]}" if met else "they share no commit"
    return f"wanted a --good that {bad[:8]} comes from, found {good[:8]} beside it; {works}"
