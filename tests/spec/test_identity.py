"""Names are made from the question alone."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.errors import UsageError
from gangline.spec import identity
from gangline.spec.record import CommitInfo

slugs = st.from_regex(r"[a-z][a-z0-9-]{0,19}", fullmatch=True)
hexes = st.text("0123456789abcdef", min_size=40, max_size=40)


def ours(commit, **more):
    return CommitInfo(sha=commit, tree="a" * 40, **{"protected": True} | more)


@given(project=slugs, commit=hexes, line=hexes, attempt=st.integers(1, 99))
def test_run_id_is_short_a_dns_label_and_the_same_every_time(project, commit, line, attempt):
    name = identity.run_id(project, ours(commit), line=line, attempt=attempt)
    assert name == identity.run_id(project, ours(commit), line=line, attempt=attempt)
    assert len(name) <= 36
    assert re.fullmatch(r"[a-z][a-z0-9-]*[a-z0-9]", name)
    assert identity.parts(name) == (project, commit[:8])


@given(commit=hexes, line=hexes, other=hexes, attempt=st.integers(1, 9))
def test_another_question_has_another_run(commit, line, other, attempt):
    mine = identity.run_id("p", ours(commit), line=line, attempt=attempt)
    assert mine != identity.run_id("p", ours(commit), line=line, attempt=attempt + 1)
    if other not in (line, commit):
        assert mine != identity.run_id("p", ours(commit), line=other, attempt=attempt)
        assert mine != identity.run_id("p", ours(other), line=line, attempt=attempt)


@given(commit=hexes, line=hexes)
def test_the_same_commit_of_a_fork_a_feature_branch_and_a_dirty_tree_are_four_questions(commit, line):
    asked = [{}, {"trust": "fork", "protected": False}, {"protected": False}, {"patch": "p", "protected": False}]
    assert len({identity.run_id("p", ours(commit, **each), line=line, attempt=1) for each in asked}) == 4


@given(project=slugs, commit=hexes, role=st.sampled_from(["train", "evaluate", "prove"]), attempt=st.integers(1, 99))
def test_gang_names_fit_and_differ_by_role_and_attempt(project, commit, role, attempt):
    run = identity.run_id(project, ours(commit), line=commit, attempt=1)
    names = {identity.gang_name(run, each, attempt) for each in ("train", "evaluate", "prove")}
    names |= {identity.gang_name(run, role, attempt + 1)} if attempt < 99 else set()
    assert len(names) == (4 if attempt < 99 else 3)
    assert max(map(len, names)) <= 42


def test_first_training_gang_is_called_as_its_run():
    assert identity.gang_name("a-9f31c2a0-k7q2mx", "train") == "a-9f31c2a0-k7q2mx"


@pytest.mark.parametrize("text", ["", "x", "a-b-c", "bytegpt-9f31-k7q2mx", "-9f31c2a0-k7q2mx"])
def test_what_is_not_a_run_id_is_refused(text):
    with pytest.raises(UsageError, match="run id"):
        identity.parts(text)
