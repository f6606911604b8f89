"""What a push brought, as git tells a post-receive hook: `old new ref`, a line each. Pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gangline.errors import UsageError

MAX_LINES = 10_000
MOST_RUNS = 8
"""Runs that one push starts: a mirror that is pushed for the first time brings every branch it ever had."""
_LINE = re.compile(r"([0-9a-f]{40}|[0-9a-f]{64}) ([0-9a-f]{40}|[0-9a-f]{64}) (refs/\S{1,1000})\n?")


@dataclass(frozen=True, slots=True)
class Push:
    """A branch that stands at another commit now."""

    branch: str
    commit: str
    old: str | None
    """Where it stood; None: it is new."""

    @property
    def ref(self) -> str:
        return f"refs/heads/{self.branch}"


def read_pushes(lines: Iterable[str]) -> list[Push]:
    """Branches that were made or moved; tags, deletions and other refs are nothing to build.

    Raises:
        UsageError: A line that no git writes; or more than anybody pushes.
    """
    found: list[Push] = []
    for number, line in enumerate(lines, 1):
        match = _LINE.fullmatch(line)
        if match is None or number > MAX_LINES:
            raise UsageError(
                f"wanted `old new ref` lines as git writes them, at most {MAX_LINES}, found {line[:80]!r} at {number};"
                " git calls `gangline hook post-receive` itself, once `gangline hook install` has put it there"
            )
        old, new, ref = match.groups()
        if ref.startswith("refs/heads/") and set(new) != {"0"}:
            found.append(Push(ref.removeprefix("refs/heads/"), new, None if set(old) == {"0"} else old))
    return found


def chosen(pushes: Sequence[Push]) -> tuple[list[Push], list[Push]]:
    """(those to build, those left out): of several branches at one commit the first, and only so many."""
    by_commit: dict[str, Push] = {}
    for push in pushes:
        by_commit.setdefault(push.commit, push)
    wanted = sorted(by_commit.values(), key=lambda push: push.old is None)  # moved branches first
    return wanted[:MOST_RUNS], wanted[MOST_RUNS:]
