"""One trial: tests run in a copy of the tree, as it is or without one protection."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tests.faults.mutation import ROOT, Mutation, applied, applies

LONGEST_SECONDS = 900.0
NO_END = 124
_PYTEST = (
    "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly",
    "-m", "not slow and not gpu and not cluster",
)  # fmt: skip
_ALONE = """
import signal, subprocess, sys
from gangline.keeper.ipc.signals import adopt_orphans
from gangline.keeper.ranks.rank_processes import kill_orphans

adopt_orphans()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
try:
    code = subprocess.call(sys.argv[1:])
finally:
    kill_orphans([])
sys.exit(code)
"""
"""Runs a command; nothing that it started is left then, whatever became of it."""
_SAYS_NOTHING = ("docs/", "tests/faults/mutations/")
"""What no test of a patch reads."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What tests came to."""

    code: int
    """Of pytest; 124: no end."""
    said: str
    """The first that failed, or the last line."""
    seconds: float


def run_tests(tree: Path, tests: Sequence[str], *, longest_seconds: float = LONGEST_SECONDS) -> Ran:
    """Run pytest over `tests` in `tree` up to the first failure; what they write lies beside it."""
    began = time.monotonic()
    python = str(tree / ".venv" / "bin" / "python")
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _ALONE, python, *_PYTEST, f"--basetemp={tree}-tmp", *tests], cwd=tree,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTEST_ADDOPTS": ""}, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        said = process.communicate(timeout=longest_seconds)[0]
    except subprocess.TimeoutExpired:
        process.terminate()
        process.communicate()
        return Ran(NO_END, f"no end in {longest_seconds:.0f} s", time.monotonic() - began)
    seconds = time.monotonic() - began
    if re.search(r"^\++ Timeout \++$", said, re.MULTILINE):  # pytest-timeout ends pytest with the code of a failure
        return Ran(NO_END, "a test had no end", seconds)
    lines = [line for line in said.splitlines() if line.strip()]
    failed = [line for line in lines if line.startswith(("FAILED tests", "ERROR tests"))]
    return Ran(process.returncode, (failed or lines[-1:] or [""])[0], seconds)


def verdict(mutation: Mutation, tree: Path, *, longest_seconds: float = LONGEST_SECONDS) -> tuple[bool, str]:
    """Is it noticed that the protection is gone, and by what."""
    if reason := applies(mutation, tree):
        return False, f"the patch does not apply: {reason}"
    with applied(mutation, tree):
        ran = run_tests(tree, mutation.tests, longest_seconds=longest_seconds)
    noticed = ran.code == (NO_END if mutation.sign == "hang" else 1)
    reported = {0: "NOT NOTICED by any test", 1: ran.said, NO_END: ran.said}
    return noticed, reported.get(ran.code, f"pytest {ran.code}: {ran.said}")


def longest_seconds(mutation: Mutation, unharmed: Mapping[str, Ran]) -> float:
    """How long its tests are waited for, on a machine that others use, too; `unharmed` is what files took without."""
    return min(LONGEST_SECONDS, 60 + 5 * sum(unharmed[file].seconds for file in files_of(mutation)))


def why_shows_nothing(mutation: Mutation, unharmed: Mapping[str, Ran]) -> str:
    """Which file of its tests does not pass as it is; empty: all do."""
    for file in files_of(mutation):
        if unharmed[file].code:
            return f"{file} does not pass as it is: {unharmed[file].said}"
    return ""


def files_of(mutation: Mutation) -> list[str]:
    return sorted({file_of(test) for test in mutation.tests})


def file_of(test: str) -> str:
    return test.partition("::")[0]


def copy_of_tree(target: Path) -> tuple[Path, str]:
    """All files of the checkout that git knows or would take, as they are now, and the digest of what tests read."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(words, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    digest = sha256()
    for name in sorted(filter(None, names)):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
            if not name.startswith(_SAYS_NOTHING):
                digest.update(f"{name} {sha256((target / name).read_bytes()).hexdigest()}\n".encode())
    return target, digest.hexdigest()


def with_python(tree: Path) -> Path:
    """Give `tree` a python of its own that has our packages and imports `gangline` from there, in any environment."""
    venv.create(tree / ".venv", symlinks=True)
    [own] = (tree / ".venv").glob("lib/python*/site-packages")
    (own / "tree.pth").write_text(f"{tree / 'src'}\n{sysconfig.get_path('purelib')}\n")
    return tree
