"""What came of each combination: a table for people, JSON for programs, and the page of the documentation."""

import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.versions.combination import KIT, ROOT, Check, Combination

FILE = ROOT / "docs" / "reference" / "versions.json"
PAGE = ROOT / "docs" / "reference" / "versions.md"
NAMES = ("setup", "demo", "lock", "suite")
"""Of every pair; that of the kit has another."""
COLUMNS = (*NAMES, "gpu kit")
_ASK = "import platform; from importlib.metadata import version as v; print(platform.python_version(), v('torch'))"


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    name: str
    """As `ONLY` takes it."""
    python: str
    torch: str
    """Releases that were found installed."""
    of_lock: str
    checks: tuple[Check, ...]

    @staticmethod
    def of(combination: Combination, checks: Sequence[Check]) -> "Result":
        program = combination.tree / ".venv" / "bin" / "python"
        said = "" if not checks[0].passed else subprocess.run(
            [program, "-c", _ASK], capture_output=True, text=True, check=True
        ).stdout  # fmt: skip
        python, torch = said.split() or (combination.python, combination.torch)
        return Result(
            name=combination.name, python=python, torch=torch, of_lock="-".join(combination.of_lock),
            checks=tuple(checks),
        )  # fmt: skip

    @staticmethod
    def read(plain: dict) -> "Result":
        return Result(**plain | {"checks": tuple(Check(**each) for each in plain["checks"])})

    @property
    def passed(self) -> bool:
        return [check.name for check in self.checks if check.passed] == [*_names_of(self.name)]

    def cells(self) -> list[str]:
        by_name = {check.name: check for check in self.checks}
        wanted = _names_of(self.name)
        return [self.python, self.torch, *(self._cell(by_name.get(name)) if name in wanted else "" for name in COLUMNS)]

    def _cell(self, check: Check | None) -> str:
        if check is None:
            return "not run"
        counted = re.search(r"\d+ passed", check.said)
        words = ["ok" if check.passed else "FAILED", f"{check.seconds:.0f} s"]
        words += [counted[0]] if counted and check.name == "suite" else []
        words += [self.of_lock.replace("-", " with ")] if check.name == "lock" else []
        return ", ".join(words)


def _names_of(combination: str) -> tuple[str, ...]:
    """Of its checks."""
    return COLUMNS if combination == "-".join(KIT) else NAMES


def table(results: Sequence[Result]) -> str:
    """Columns for a terminal."""
    rows = [["python", "torch", *COLUMNS], *(result.cells() for result in results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines) + "\n"


def page(results: Sequence[Result]) -> str:
    rows = ["| " + " | ".join(result.cells()) + " |" for result in results]
    return _HEAD + "\n".join(rows) + "\n"


def recorded() -> list[Result]:
    return [Result.read(each) for each in json.loads(FILE.read_text("utf-8"))] if FILE.exists() else []


def merge(results: Sequence[Result]) -> None:
    """Put these in place of what was recorded of the same combinations, and draw the page."""
    found = {result.name: result for result in (*recorded(), *results)}
    every = [found[each.name] for each in Combination.every(Path()) if each.name in found]
    write(FILE, every)
    PAGE.write_text(page(every), "utf-8")


def write(file: Path, results: Sequence[Result]) -> None:
    file.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n", "utf-8")


_HEAD = """\
# Versions

What `make test-versions RECORD=1` ran of each pair of Python and torch; it draws this page. The whole suite runs under
Python 3.11 with torch 2.15, the pair of the lock. Python 3.11 and torch 2.11 are the oldest: setup, packages and
`gangline doctor` refuse older ones by name, and `doctor` says of a newer one that it was not seen.

```console
$ make setup PYTHON=python3.12          # the Python of .venv
$ TORCH_VERSION=2.11 make setup         # torch and its libraries from a hashed lock of that version
```

- **setup**: `make setup-dev`.
- **demo**: `make demo`: one commit through all stages to a signed model, verdict `passed`.
- **lock**: a small GPT through the line, DDP proved by FSDP. Its commit [locks](../guides/environments.md) another
  Python and torch, which its ranks run in, while gangline runs in those of the row.
- **suite**: a slice of the training suite, strategies against one process.
- **gpu kit**: `make gpu-kit`, then all parts of its session, rehearsed in small shapes on the processor.

Pipelines need torch 2.13: stages of 2.11 send back a gradient of every tensor that they received, also of those that
have none, so plans with stages are refused by name there.
Seconds are of 2 cores that other work shared; a setup of 4 s and less found its environment made.

| Python | torch | setup | demo | lock | suite | gpu kit |
|---|---|---|---|---|---|---|
"""
