"""Experiments, dirty and drilled runs: never a base, never published, named last, and marked wherever they show."""

from dataclasses import replace

import pytest
from tests.line import repositories
from tests.report import records
from tests.serve.pages.samples import MAINTAINER
from typer.testing import CliRunner

from gangline.cli.main import app
from gangline.forge.pull_request_comment import comment_text
from gangline.git.repository import Repository
from gangline.line.record.earlier_runs import find_earlier_runs
from gangline.line.request.run_lookup import look_up_run
from gangline.registry.publish_rules import unpublishable_reason
from gangline.report.facts import verdict_text
from gangline.report.run.html import render_html
from gangline.report.run.markdown import render_markdown
from gangline.report.run.terminal import page
from gangline.serve.pages.run import render_run
from gangline.serve.runs.index_row import row_from_bytes, row_of
from gangline.spec.measurements import Drill
from gangline.spec.run_flags import UNDER_WAY, flags_of


def experiment(record):
    return replace(record, inputs=replace(record.inputs, overrides=("train.lr=0.1", "train.steps=9")))


def dirty(record):
    return replace(record, commit=replace(record.commit, patch="blobs/sha256/00"))


def drilled(record):
    return replace(record, drills=(Drill(name="kill-rank", row="T1", result="held"),))


KINDS = {"experiment": experiment, "dirty": dirty, "drilled": drilled}
SAID = {"experiment": "experiment with train.lr, train.steps", "dirty": "uncommitted changes", "drilled": "drilled"}
by_kind = pytest.mark.parametrize("kind", KINDS)


def without_bands(record):
    return replace(record, metrics={name: replace(each, band=None) for name, each in record.metrics.items()})


def place(workspace, record, letter, *, day):
    """A passed run of the first commit, born on that day of March."""
    repository = Repository.at(workspace.repo)
    sha = repository.commit("first")
    run = replace(record.run, id=f"cheap-{sha[:8]}-aaaaa{letter}", project="cheap", created=f"2026-03-0{day}T00:00:00Z")
    placed = replace(record, run=run, commit=replace(record.commit, sha=sha, tree=repository.tree(sha)))
    workspace.store.put(f"{placed.prefix}/record.json", placed.to_json())
    return placed


def base(workspace):
    """Of the commit after the first."""
    found = find_earlier_runs(
        workspace.store, Repository.at(workspace.repo), project="cheap",
        commit=Repository.at(workspace.repo).commit(), run="none", holds=lambda _: True,
    )  # fmt: skip
    return found.base and found.base.run.id[-1]


@pytest.fixture
def later(workspace):
    """A repository with a commit after the first, which has the tag `first`."""
    repositories.git(workspace.repo, "tag", "first")
    repositories.commit(workspace.repo, {"x": "1"})
    return workspace


@by_kind
def test_a_marked_run_is_not_a_base_however_new(later, kind):
    place(later, KINDS[kind](records.passed()), "b", day=3)
    assert base(later) is None
    place(later, records.passed(), "c", day=1)
    assert base(later) == "c"


def test_the_base_is_the_newest_run_that_has_a_band(later):
    place(later, without_bands(records.passed()), "b", day=2)
    assert base(later) == "b"
    place(later, records.passed(), "c", day=1)
    place(later, without_bands(records.passed()), "d", day=3)
    assert base(later) == "c"
    place(later, records.passed(), "e", day=4)
    assert base(later) == "e"


@by_kind
def test_a_commit_is_known_by_its_unmarked_run(later, kind):
    place(later, KINDS[kind](records.passed()), "b", day=3)
    assert look_up_run(later.store, later.repo, "first").run.id.endswith("b")
    place(later, records.passed(), "c", day=1)
    assert look_up_run(later.store, later.repo, "first").run.id.endswith("c")


@by_kind
def test_a_marked_run_is_never_published(kind):
    passed = replace(records.passed(), commit=replace(records.passed().commit, protected=True))
    assert unpublishable_reason(passed) is None
    assert unpublishable_reason(KINDS[kind](passed))


def test_a_drill_that_never_struck_marks_nothing_and_one_under_way_does():
    waited = Drill(name="kill-rank", row="T1", result="not_struck")
    assert flags_of(replace(records.passed(), drills=(waited,))) == ()
    assert flags_of(replace(records.passed(), drills=(replace(waited, reason=UNDER_WAY),))) == ("drilled",)


def surfaces(record):
    return {
        "show": page(record),
        "markdown": render_markdown(record),
        "comment": comment_text(record, "https://runs.example"),
        "report": render_html(record),
        "page": render_run(record, base=None, principal=MAINTAINER, live=False, now=0.0),
    }


@by_kind
def test_every_report_says_so(kind):
    wanted = f"{SAID[kind]} · never a base, never published"
    for name, text in surfaces(KINDS[kind](records.passed())).items():
        assert wanted in text, name
    for name, text in surfaces(records.passed()).items():
        assert "never a base" not in text, name


@by_kind
def test_the_lists_say_so(later, kind):
    marked = place(later, KINDS[kind](records.passed()), "b", day=3)
    place(later, records.passed(), "c", day=1)
    said = CliRunner().invoke(app, ["list", "--repo", str(later.repo)])
    rows = said.stdout.splitlines()
    assert f"{verdict_text(marked)} · {kind}" in next(row for row in rows if marked.run.id in row)
    assert sum(kind in row for row in rows) == 1
    row = row_of(marked)
    assert row.marks == kind
    assert row_from_bytes(marked.prefix, marked.to_json()) == row
