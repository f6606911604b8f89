"""Many runs of fifty projects: their rows in an index, their records in a store, and lists of them as people ask."""

import json
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache

from tests.contracts.database.rows import row
from tests.report import records

from gangline.serve.database.types import RunFilter

PROJECTS = 50
WORDS = ["attention", "norm", "width", "loss", "data", "faster"]
RARE = 501
"""Number of the run that one search is for."""


def rows(count):
    draw = random.Random(1)
    for n in range(count):
        project = f"p{n % PROJECTS}"
        yield row(
            n,
            run=f"{project}-{draw.getrandbits(32):08x}-{n:06d}",
            project=project,
            commit=f"{draw.getrandbits(160):040x}",
            branch=draw.choice(["main", f"topic/{n % 700}"]),
            subject=f"{draw.choice(WORDS)} {draw.choice(WORDS)} {n}",
            verdict=draw.choices(["passed", "failed", "open"], [90, 9, 1])[0],
            pull_request=n if n % 10 == 0 else None,
            created=f"{datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=n):%Y-%m-%dT%H:%M:%S}.000Z",
        )


def fill(database, stored):
    for start in range(0, len(stored), 1000):
        database.runs.put(stored[start : start + 1000])


def pages(stored):
    """(what, filter) of lists that an index leads to."""
    middle = stored[len(stored) // 2]
    yield "newest", RunFilter()
    yield "from the middle", RunFilter(before=(middle.created, middle.run))
    yield "one project", RunFilter(project="p7")
    yield "three projects", RunFilter(projects=("p1", "p2", "p3"))
    yield "failed of a project", RunFilter(project="p7", verdict="failed")
    yield "open of all", RunFilter(verdict="open")
    yield "a branch", RunFilter(branch="topic/77")
    yield "a pull request", RunFilter(pull_request=500)
    yield "a commit", RunFilter(commit=middle.commit[:10])


def searches():
    """(what, filter) of words, which are looked for in one run after the other."""
    yield "a word that many have", RunFilter(text="norm")
    yield "a word that one has", RunFilter(text=f" {RARE}")
    yield "a word that nobody has", RunFilter(text="nowhere")


def named(stored):
    """A row whose run has an id as gangline makes them."""
    letters = stored.run[-6:].translate(str.maketrans("0189", "abcd"))
    return replace(stored, run=f"{stored.project}-{stored.commit[:8]}-{letters}")


def record_of(stored):
    """The record behind a row."""
    made = records.refused()
    run = replace(made.run, id=stored.run, project=stored.project, created=stored.created)
    commit = replace(made.commit, sha=stored.commit, branch=stored.branch, subject=stored.subject)
    return replace(made, run=run, commit=commit, gang=replace(made.gang, name=stored.run))


def put_records(root, stored):
    """Their records as files of a folder store, made fast."""
    for each in stored:
        path = root / each.prefix
        path.mkdir(parents=True)
        (path / "record.json").write_bytes(_as_bytes(each))


@cache
def _first():
    """A row and its record."""
    row = named(replace(next(rows(1)), branch="main"))
    return row, record_of(row).to_json()


def _as_bytes(stored):
    first, data = _first()
    for name in ("run", "project", "commit", "created", "subject"):
        before, after = (json.dumps(getattr(each, name)).encode() for each in (first, stored))
        data = data.replace(before, after)
    return data
