"""Refs of a push: which are built, which are not, and what no git would write."""

import pytest

from gangline.errors import UsageError
from gangline.forge.bare_repository import MAX_RUNS, Push, choose_pushes, read_pushes

OLD, NEW, NONE = "1" * 40, "2" * 40, "0" * 40


def test_new_and_moved_branches_are_pushes():
    lines = [f"{NONE} {NEW} refs/heads/new\n", f"{OLD} {NEW} refs/heads/feature/x\n"]
    assert read_pushes(lines) == [Push("new", NEW, None), Push("feature/x", NEW, OLD)]


@pytest.mark.parametrize(
    "line", [f"{OLD} {NONE} refs/heads/gone", f"{NONE} {NEW} refs/tags/v1", f"{OLD} {NEW} refs/n/x"]
)
def test_deleted_branches_and_tags_are_nothing_to_build(line):
    assert read_pushes([line + "\n"]) == []


@pytest.mark.parametrize(
    "line", ["", "x", f"{OLD} {NEW}", f"{OLD} {NEW} main", f"{OLD[:9]} {NEW} refs/heads/x", "\x00"]
)
def test_what_git_would_not_write_is_refused(line):
    with pytest.raises(UsageError, match="hook install"):
        read_pushes([line])


def test_endless_input_is_refused():
    with pytest.raises(UsageError, match="at most"):
        read_pushes(f"{OLD} {NEW} refs/heads/{n}" for n in range(1_000_000))


def test_a_hundred_branches_start_a_few_runs_and_the_rest_is_named():
    pushes = [Push(f"b{n}", f"{n:040x}", None) for n in range(1, 100)] + [Push("main", NEW, OLD)]
    build, left = choose_pushes(pushes)
    assert (len(build), len(left)) == (MAX_RUNS, 100 - MAX_RUNS)
    assert build[0].branch == "main"


@pytest.mark.parametrize("name", ["feature/ü#1", "a=b+c,d", "\u00a0x", "x\u2028y", "it's", "a&b;c|d"])
def test_names_as_git_takes_them_are_pushes(name):
    assert read_pushes([f"{OLD} {NEW} refs/heads/{name}\n"]) == [Push(name, NEW, OLD)]


def test_a_name_that_git_takes_for_no_branch_stands_back_behind_one_at_the_same_commit():
    build, _ = choose_pushes([Push("HEAD", NEW, None), Push("main", NEW, OLD)])
    assert [each.branch for each in build] == ["main"]


def test_branches_at_one_commit_are_built_once():
    build, left = choose_pushes([Push("a", NEW, None), Push("b", NEW, None)])
    assert ([each.branch for each in build], left) == (["a"], [])
