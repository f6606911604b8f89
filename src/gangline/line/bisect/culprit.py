"""What the first bad commit changed, and how to look into it where it is a merge."""

from gangline.line.git import Repository
from gangline.report.bisect_text import Culprit
from gangline.report.compare_types import FileChange
from gangline.spec.bisect import BisectState

PATCH_BYTES = 200_000


def look_at(repository: Repository, state: BisectState) -> Culprit | None:
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
        inside=_inside(repository, state),
    )


def _inside(repository: Repository, state: BisectState) -> str | None:
    """A merge is bad as a whole; its own commits lie between where they left the line and their tip."""
    assert state.first_bad is not None, state.id
    parents = repository.parents(state.first_bad)
    if len(parents) < 2:
        return None
    left = repository.merge_base(parents[0], parents[1])
    return f"gangline bisect {state.metric} --good {left[:8]} --bad {parents[1][:8]}" if left else None
