"""Protections removed one by one from a copy of the tree, and the tests that must notice: `make mutations`.

A patch in `mutations/` removes one protection. Above its first `---` it says

    Row: T1 T2          rows of the goal sheet that it belongs to
    Removes: that ...   the protection
    Tests: path ...     what must fail then, and must pass in the copy as it is
    Trap: DDP ...       optional: the behaviour of a library that the protection is there for
    Sign: hang          optional: without the protection something never ends; else a run without an end shows nothing

A patch that no longer applies, and one whose tests fail anyway, count like one that nobody notices.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gangline.train.leash import adopt_orphans
from gangline.train.reaper import end_orphans

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent / "mutations"
LONGEST_SECONDS = 900.0
NO_END = 124
_FIELDS = ("Row", "Removes", "Tests")
_OPTIONAL = ("Trap", "Sign")


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
    return _git_apply(mutation, tree, "--check")


@contextmanager
def applied(mutation: Mutation, tree: Path) -> Iterator[None]:
    if reason := _git_apply(mutation, tree):
        raise ValueError(reason)
    try:
        yield
    finally:
        _git_apply(mutation, tree, "--reverse")


def copy_of_tree(target: Path) -> Path:
    """All files of the checkout that git knows or would take, as they are now."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(words, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return with_python(target)


def run_tests(tree: Path, tests: Sequence[str], *, longest_seconds: float = LONGEST_SECONDS) -> tuple[int, str]:
    """Exit code of pytest over `tests` in `tree`, and what it said at last; 124: it did not come to an end."""
    words = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow and not gpu and not cluster", *tests]
    process = subprocess.Popen(
        [tree / ".venv" / "bin" / "python", *words], cwd=tree, env=_environ(), text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        said = process.communicate(timeout=longest_seconds)[0]
    except subprocess.TimeoutExpired:
        return NO_END, f"no end in {longest_seconds:.0f} s"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if re.search(r"^\++ Timeout \++$", said, re.MULTILINE):  # pytest-timeout ends pytest with the code of a failure
        return NO_END, "a test had no end"
    lines = [line for line in said.splitlines() if line.strip()]
    failed = [line for line in lines if line.startswith(("FAILED tests", "ERROR tests"))]
    return process.returncode, (failed or lines[-1:] or [""])[0]


def verdict(mutation: Mutation, tree: Path, *, longest_seconds: float = LONGEST_SECONDS) -> tuple[bool, str]:
    """Is it noticed, and by what."""
    if reason := applies(mutation, tree):
        return False, f"the patch does not apply: {reason}"
    with applied(mutation, tree):
        code, said = run_tests(tree, mutation.tests, longest_seconds=longest_seconds)
    noticed = code == (NO_END if mutation.sign == "hang" else 1)
    return noticed, {0: "NOT NOTICED by any test", 1: said, NO_END: said}.get(code, f"pytest {code}: {said}")


class Unharmed:
    """What tests come to in the tree as it is, those of a file together and once."""

    def __init__(self, tree: Path, tests: Iterable[str]) -> None:
        self._tree, self._tests = tree, sorted(set(tests))
        self._found: dict[str, tuple[str, float]] = {}

    def why_not(self, tests: Iterable[str]) -> str:
        """Why `tests` show nothing: a file of theirs does not pass as it is; empty: all do."""
        files = dict.fromkeys(map(_file, tests))
        return next((f"{file} does not pass as it is: {why}" for file in files if (why := self._run(file)[0])), "")

    def longest_seconds(self, tests: Iterable[str]) -> float:
        """How long a run of `tests` is waited for, on a machine that others use, too."""
        return min(LONGEST_SECONDS, 60 + 5 * sum(self._run(file)[1] for file in {*map(_file, tests)}))

    def _run(self, file: str) -> tuple[str, float]:
        if file not in self._found:
            began = time.monotonic()
            code, said = run_tests(self._tree, [test for test in self._tests if _file(test) == file])
            self._found[file] = said if code else "", time.monotonic() - began
        return self._found[file]


def judge(mutation: Mutation, tree: Path, unharmed: Unharmed) -> tuple[bool, str]:
    """`verdict`, where the tests pass without the patch; nothing that a test started is left afterwards."""
    if why := unharmed.why_not(mutation.tests):
        return False, why
    try:
        return verdict(mutation, tree, longest_seconds=unharmed.longest_seconds(mutation.tests))
    finally:
        end_orphans([])


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="patches or rows, e.g. nan-judge T9; none: all")
    asked = mutations(parser.parse_args(words).names)
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the copy goes, and what runs in it
    missed = 0
    with tempfile.TemporaryDirectory(prefix="gangline-mutations-") as folder:
        tree = copy_of_tree(Path(folder))
        unharmed = Unharmed(tree, (test for each in asked for test in each.tests))
        for each in asked:
            began = time.monotonic()
            noticed, why = judge(each, tree, unharmed)
            missed += not noticed
            seconds, word = time.monotonic() - began, "noticed" if noticed else "MISSED"
            print(f"{word:8}{each.name:32}{each.row:8}{seconds:5.0f} s  {why[:200]}", flush=True)
    print(f"{len(asked) - missed} of {len(asked)} protections are noticed when they go")
    return int(missed > 0)


def _file(test: str) -> str:
    return test.partition("::")[0]


def with_python(tree: Path) -> Path:
    """Give `tree` a python of its own that has our packages and imports `gangline` from there, in any environment."""
    venv.create(tree / ".venv", symlinks=True)
    [own] = (tree / ".venv").glob("lib/python*/site-packages")
    (own / "tree.pth").write_text(f"{tree / 'src'}\n{sysconfig.get_path('purelib')}\n")
    return tree


def _environ() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def _git_apply(mutation: Mutation, tree: Path, *options: str) -> str:
    """What git said against it."""
    environ = os.environ | {"GIT_CEILING_DIRECTORIES": str(tree.parent)}
    done = subprocess.run(
        ["git", "apply", "--whitespace=nowarn", *options, str(mutation.path)],
        cwd=tree, env=environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stderr.strip() if done.returncode else ""


if __name__ == "__main__":
    sys.exit(main())
