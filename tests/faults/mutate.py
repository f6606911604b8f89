"""Protections removed one by one from a copy of the tree, and the tests that must notice: `make mutations`.

First each test file that a patch names must pass in the copy as it is, once for all patches; then every patch is tried.
A patch that no longer applies, and one whose tests fail anyway, count like one that nobody notices.

What came out well is kept under `build/mutations`, by the digest of the tree: run it again after a break, or after
patches were changed, and only the rest is tried.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from tests.faults.mutation import ROOT, Mutation, mutations
from tests.faults.trial import Ran, copy_of_tree, file_of, longest_seconds, run_tests, verdict, why_shows_nothing
from tests.faults.workers import Workers, workers

KEPT = ROOT / "build" / "mutations"
_SHOWN = 110


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of one patch."""

    patch: str
    row: str
    noticed: bool
    by: str
    """The test that failed; of a patch that nobody noticed, why."""
    seconds: float


class Journal:
    """What came out well, for the next run over the same tree."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines() if path.exists() else []
        self._known: dict[str, dict[str, object]] = dict(map(json.loads, lines))

    def get(self, *key: object) -> dict[str, object] | None:
        return self._known.get(repr(key))

    def keep(self, value: Ran | Tried, *key: object) -> None:
        with self._path.open("a") as file:
            print(json.dumps([repr(key), asdict(value)]), file=file, flush=True)


class Progress:
    """A line for each thing that is done."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total, self._done, self._began = what, total, 0, time.monotonic()

    def done(self, name: str, said: str, seconds: float) -> None:
        self._done += 1
        now = time.strftime("%M:%S", time.gmtime(time.monotonic() - self._began))
        place = f"{self._what} {self._done} of {self._total}, {now}"
        print(f"{place:28}{seconds:5.0f} s  {name:34}  {said[:_SHOWN]}", flush=True)


def unharmed(asked: Sequence[Mutation], crew: Workers, journal: Journal) -> dict[str, Ran]:
    """What each test file that patches name comes to in the tree as it is: all its tests in question, once."""
    tests = sorted({test for each in asked for test in each.tests})
    by_file = {file: tuple(each for each in tests if file_of(each) == file) for file in map(file_of, tests)}
    found = {file: Ran(**kept) for file, own in by_file.items() if (kept := journal.get("passes", own))}
    left = sorted(by_file.keys() - found)
    progress = Progress("tests", len(left))
    for own, ran in crew.run(run_tests, [by_file[file] for file in left]):
        file = file_of(own[0])
        found[file] = ran
        progress.done(file.removeprefix("tests/"), ran.said if ran.code else "passes as it is", ran.seconds)
        if ran.code == 0:
            journal.keep(ran, "passes", own)
    return found


def try_out(asked: Sequence[Mutation], passes: Mapping[str, Ran], crew: Workers, journal: Journal) -> list[Tried]:
    """All patches of `asked`, those that take longest first."""
    found = {each.name: Tried(**kept) for each in asked if (kept := journal.get("noticed", each.path.read_text()))}
    left = [each for each in asked if each.name not in found]
    left.sort(key=lambda each: longest_seconds(each, passes), reverse=True)
    progress = Progress("patches", len(left))
    for each, tried in crew.run(partial(_try, passes=passes), left):
        found[each.name] = tried
        progress.done(each.name, tried.by if tried.noticed else f"MISSED: {tried.by}", tried.seconds)
        if tried.noticed:
            journal.keep(tried, "noticed", each.path.read_text())
    return [found[each.name] for each in asked]


def _try(tree: Path, mutation: Mutation, *, passes: Mapping[str, Ran]) -> Tried:
    began = time.monotonic()
    if why := why_shows_nothing(mutation, passes):
        return Tried(mutation.name, mutation.row, False, why, 0.0)
    noticed, by = verdict(mutation, tree, longest_seconds=longest_seconds(mutation, passes))
    return Tried(mutation.name, mutation.row, noticed, by, round(time.monotonic() - began, 1))


def table(tried: Sequence[Tried]) -> str:
    """Patch, row, by what it was noticed, seconds; what nobody noticed comes last."""
    widths = max(len(each.patch) for each in tried), max(len(each.row) for each in tried)
    lines = []
    for each in sorted(tried, key=lambda each: (not each.noticed, each.patch)):
        by = each.by.removeprefix("FAILED tests/") if each.noticed else f"MISSED: {each.by}"
        lines.append(f"{each.patch:{widths[0]}}  {each.row:{widths[1]}}  {each.seconds:5.0f} s  {by[:_SHOWN]}")
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="patches or rows, e.g. nan-judge T9; none: all")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="trials at once, %(default)s")
    parser.add_argument("--json", type=Path, help="write what came out to this file, too")
    parser.add_argument("--fresh", action="store_true", help="try what is known from an earlier run, too")
    options = parser.parse_args(words)
    asked = mutations(options.names)
    if not asked:
        parser.error(f"no patch and no row of a patch is called {' '.join(options.names)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the copies go, and what runs in them
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gangline-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)  # users that sandboxes run as come by
        tree, digest = copy_of_tree(Path(folder) / "tree")
        kept = KEPT / f"{digest[:16]}.jsonl"
        if options.fresh:
            kept.unlink(missing_ok=True)
        journal = Journal(kept)
        with workers(tree, Path(folder), options.jobs) as crew:
            tried = try_out(asked, unharmed(asked, crew, journal), crew, journal)
    missed, seconds = sum(not each.noticed for each in tried), round(time.monotonic() - began, 1)
    if options.json:
        reported = {"tree": digest, "seconds": seconds, "missed": missed, "patches": [asdict(each) for each in tried]}
        options.json.write_text(json.dumps(reported, indent=1) + "\n")
    print(table(tried))
    print(f"{len(tried) - missed} of {len(tried)} protections are noticed when they go; {seconds:.0f} s")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
