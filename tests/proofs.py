"""What the training runtime proved of itself: tests marked `proves` run, and the table of strategies is drawn of them.

    make proofs               run every such test, full size too, and draw the page; ONLY=FILES of these files
    python -m tests.proofs    draw it again from docs/reference/proofs.json

    @pytest.mark.proves("fsdp", oracle="one process", gate="1e-5")
    def test_...(reached): ... reached(difference)

A row is in the page only if all of its tests passed; what they reached is the worst of them.
"""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "docs" / "reference" / "proofs.json"
PAGE = ROOT / "docs" / "reference" / "strategies.md"
REACHED, PROVES = "reached", "proves"


def tell_claims(items: Iterable[pytest.Item]) -> None:
    """Put each test's claims where reports carry them, from workers, too."""
    for item in items:
        for mark in item.iter_markers(PROVES):
            item.user_properties.append((PROVES, _claim(*mark.args, **mark.kwargs)))


class Proofs:
    """Plugin of the process that leads a session: remembers how the marked tests ended, and writes it down."""

    def __init__(self, file: Path, *, partial: bool = False) -> None:
        """`partial`: not all files were selected; what the file has of others stays."""
        self._file, self._partial = file, partial
        self._found: list[dict[str, Any]] = []

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        claims = [value for name, value in report.user_properties if name == PROVES]
        if report.when != "call" and report.passed:
            return
        reached = [value for name, value in report.user_properties if name == REACHED]
        worst = max(reached) if reached else None
        for claim in claims:
            self._found.append(claim | {"test": report.nodeid, "outcome": report.outcome, REACHED: worst})

    @pytest.hookimpl
    def pytest_sessionfinish(self) -> None:
        others = json.loads(self._file.read_text()) if self._partial else []
        ran = {_file_of(each) for each in self._found}
        self._found += [each for each in others if _file_of(each) not in ran]
        found = sorted(self._found, key=lambda each: (each["what"], each["oracle"], each["test"]))
        self._file.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


def _file_of(proof: dict[str, Any]) -> str:
    return proof["test"].split("::")[0]


def _claim(what: str, *, oracle: str, gate: str = "") -> dict[str, Any]:
    return {"what": what, "oracle": oracle, "gate": gate}


@pytest.fixture
def reached(request: pytest.FixtureRequest) -> Callable[[float], None]:
    """Say how large a difference was found, for the table."""
    return lambda difference: request.node.user_properties.append((REACHED, float(difference)))


def draw(proofs: Iterable[dict[str, Any]]) -> str:
    """The page: a row for each claim that all of its tests bear out."""
    rows: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for proof in proofs:
        rows.setdefault((proof["what"], proof["oracle"], proof["gate"]), []).append(proof)
    lines = [_row(key, tests) for key, tests in sorted(rows.items()) if all(t["outcome"] == "passed" for t in tests)]
    return _HEAD + "\n".join(lines) + "\n"


def _row(key: tuple[str, str, str], tests: list[dict[str, Any]]) -> str:
    what, oracle, gate = key
    seen = [each[REACHED] for each in tests if each[REACHED] is not None]
    worst = f"{max(seen):.1g}" if seen else ""
    files = sorted({_file_of(each) for each in tests})
    where = ", ".join(f"`{file}`" for file in files)
    return f"| {what} | {oracle} | {gate or 'equal'} | {worst} | {len(tests)} | {where} |"


_HEAD = """# What the training runtime proved

Each row is a strategy or a feature that real processes trained with and that came out as its oracle says: the same
model in one process with a plain loop, another layout bit for bit, or the algorithm written out slowly. A row is
here only after all of its tests passed; `make proofs` runs them and writes this page. *Gate* is the largest difference
that passes, *reached* the largest that was seen.

| what | oracle | gate | reached | tests | where |
|---|---|---|---|---|---|
"""


if __name__ == "__main__":
    PAGE.write_text(draw(json.loads(FILE.read_text())))
