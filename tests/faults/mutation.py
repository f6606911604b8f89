"""A protection and the patch that removes it: `mutations/*.patch`.

Above its first `---` a patch says

    Row: T1 T2          rows of the goal sheet that it belongs to
    Removes: that ...   the protection
    Tests: path ...     what must fail then, and must pass in the copy as it is
    Trap: DDP ...       optional: the behaviour of a library that the protection is there for
    Sign: hang          optional: without the protection something never ends; else a run without an end shows nothing
"""

import os
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent / "mutations"
_FIELDS = ("Row", "Removes", "Tests")
_OPTIONAL = ("Trap", "Sign")
_STAMPS = count(int(time.time()) + 1)


@dataclass(frozen=True, slots=True)
class Mutation:
    """One protection and how it is removed."""

    path: Path
    row: str
    removes: str
    tests: tuple[str, ...]
    trap: str = ""
    sign: str = "failure"

    @property
    def name(self) -> str:
        return self.path.stem

    @staticmethod
    def read(path: Path) -> "Mutation":
        head = path.read_text().partition("\n--- ")[0]
        said = dict(re.findall(r"^(\w+): (.+)$", head, re.MULTILINE))
        if missing := [field for field in _FIELDS if field not in said]:
            raise ValueError(f"{path}: wanted lines that begin with {missing}, found {sorted(said)}")
        if unknown := said.keys() - {*_FIELDS, *_OPTIONAL}:
            raise ValueError(f"{path}: wanted {[*_FIELDS, *_OPTIONAL]} and nothing else, found {sorted(unknown)}")
        if (sign := said.get("Sign", "failure")) not in ("failure", "hang"):
            raise ValueError(f"{path}: wanted the sign failure or hang, found {sign!r}")
        return Mutation(path, said["Row"], said["Removes"], tuple(said["Tests"].split()), said.get("Trap", ""), sign)


def mutations(words: Sequence[str] = ()) -> list[Mutation]:
    """All of them, or those whose name or row is among `words`."""
    found = [Mutation.read(path) for path in sorted(FOLDER.glob("*.patch"))]
    return [each for each in found if not words or {each.name, *each.row.split()} & set(words)]


def applies(mutation: Mutation, tree: Path) -> str:
    """Why the patch does not apply to `tree`; empty: it does."""
    return _git_apply([mutation], tree, "--check")


def stale(asked: Sequence[Mutation], tree: Path) -> dict[str, str]:
    """Why patches do not apply to `tree`, by name: one git checks many, each on its own, and halves find the stale."""
    reason = _git_apply(asked, tree, "--check") if asked else ""
    if not reason or len(asked) == 1:
        return {each.name: reason for each in asked if reason}
    middle = len(asked) // 2
    return stale(asked[:middle], tree) | stale(asked[middle:], tree)


@contextmanager
def applied(mutation: Mutation, tree: Path) -> Iterator[None]:
    if reason := _git_apply([mutation], tree):
        raise ValueError(reason)
    _date(mutation, tree)
    try:
        yield
    finally:
        _git_apply([mutation], tree, "--reverse")
        _date(mutation, tree)


def _date(mutation: Mutation, tree: Path) -> None:
    """Times that these files never had: Python takes old bytecode for what has its size and second of change."""
    stamp = next(_STAMPS)
    for name in re.findall(r"^\+\+\+ b/(.+)$", mutation.path.read_text(), re.MULTILINE):
        os.utime(tree / name, (stamp, stamp))


def _git_apply(asked: Sequence[Mutation], tree: Path, *options: str) -> str:
    """What git said against it."""
    environ = os.environ | {"GIT_CEILING_DIRECTORIES": str(tree.parent)}
    done = subprocess.run(
        ["git", "apply", "--whitespace=nowarn", *options, *(str(each.path) for each in asked)],
        cwd=tree, env=environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stderr.strip() if done.returncode else ""
