"""The service knows the default branch of a repository: its line says which branches publish, and by which gates."""

import pytest
from tests.line.repositories import LINE, git

GATE = '[[gate.quality]]\nmetric = "loss"\nbetter = "lower"\nlimit = 0.5\n'
OPEN = '[publish]\nbranches = ["**"]\nmodel = "other"\n'


@pytest.fixture(params=["folder", "forge"])
def any_yard(request):
    return request.getfixturevalue({"folder": "yard", "forge": "forged"}[request.param])


def run_of(yard, branch, **files):
    yard.push(branch=branch, files=files or None)
    if yard.forge:
        git(yard.repo, "switch", "--quiet", "main")  # HEAD of a forge's repository is its default branch
    with yard.working():
        order = yard.wait(yard.order(branch=branch))
    return next(each for each in yard.records() if each.run.id == order.run)


def test_a_commit_of_the_default_branch_is_protected(any_yard):
    record = run_of(any_yard, "main", **{"line.toml": LINE + GATE})
    assert (record.commit.branch, record.commit.protected, record.commit.rules) == ("main", True, None)


def test_a_branch_is_judged_by_the_default_branch_whatever_its_own_line_says(any_yard):
    any_yard.push(files={"line.toml": LINE + GATE})
    tip = git(any_yard.repo, "rev-parse", "main")
    record = run_of(any_yard, "feature", **{"line.toml": LINE + OPEN})
    assert (record.commit.branch, record.commit.protected, record.commit.rules) == ("feature", False, tip)
    assert record.inputs.values["publish.branches"] == ["main"]
    assert [gate["limit"] for gate in record.inputs.values["gate.quality"]] == [0.5]


def test_a_branch_that_the_default_branch_lets_publish_is_protected(any_yard):
    any_yard.push(files={"line.toml": LINE + '[publish]\nbranches = ["main", "release/*"]\n'})
    record = run_of(any_yard, "release/1", **{"notes.txt": "1\n"})
    assert (record.commit.branch, record.commit.protected) == ("release/1", True)


def test_once_merged_the_commit_gets_a_run_as_one_of_the_default_branch(any_yard):
    first = run_of(any_yard, "feature", **{"notes.txt": "1\n"})
    git(any_yard.repo, "switch", "--quiet", "main")
    git(any_yard.repo, "merge", "--quiet", "--ff-only", "feature")
    with any_yard.working():
        order = any_yard.wait(any_yard.order())
    assert order.commit == first.commit.sha
    assert order.run != first.run.id
    assert {each.commit.protected for each in any_yard.records()} == {True, False}
