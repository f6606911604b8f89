"""Names of branches are what git says they are: compared with git itself, and taken through clones of it."""

import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gangline.errors import UsageError
from gangline.git.branches import MAX_REF_BYTES, check_branch, is_branch
from gangline.git.remote import check_ref

letters = st.one_of(
    st.sampled_from("abHEAD./@{}-~^:?*[]\\lock#%&;'\"$()<>|,=+!`é漢 \t\x7f"),
    st.characters(exclude_categories=["Cs"], exclude_characters="\x00\n"),
)
pieces = st.sampled_from(["a", "HEAD", "@", "-", ".", "..", "lock", ".lock", "@{", "}", "/", "x#1", "é"])
names = st.one_of(
    st.text(letters, min_size=1, max_size=12), st.lists(pieces, min_size=1, max_size=5).map("".join)
)  # fmt: skip


def git_takes(name: str) -> bool:
    """What git says; `@{-1}` and the like are names of other branches, which it looks up."""
    done = subprocess.run(["git", "check-ref-format", "--branch", name], capture_output=True, check=False, cwd="/")
    return done.returncode == 0 and done.stdout.decode() == f"{name}\n"


@settings(max_examples=300, deadline=None)
@given(name=names)
@example("HEAD")
@example("@")
@example("-x")
@example("a.lock/b")
@example("a/.b")
@example("FETCH_HEAD")
@example("refs/heads/x")
@example("wip/#12;rm -rf~")
def test_a_name_is_a_branch_where_git_takes_it(name):
    assert is_branch(name) == git_takes(name)


@settings(max_examples=100, deadline=None)
@given(name=names)
def test_a_ref_is_fetched_where_its_branch_is_one_of_git(name):
    if git_takes(name):
        assert check_ref(f"refs/heads/{name}") == f"refs/heads/{name}"


@pytest.mark.parametrize("name", ["feature/ü#1", "a=b+c,d", "(wip)", "it's", "a&b;c|d", "x" * MAX_REF_BYTES, "漢字/é"])
def test_names_as_people_give_them_are_branches(name):
    assert check_branch(name) == name


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("HEAD", "a name that git takes for a branch"),
        ("a b", "a name that git takes for a branch"),
        ("x" * (MAX_REF_BYTES + 1), "a name that git takes for a branch"),
        ("ma\u200bin", "a branch whose name shows all of its characters"),
        ("a\udcff", "a branch whose name shows all of its characters"),  # no UTF-8
    ],
)
def test_other_names_are_refused_with_what_was_wanted(name, wanted):
    with pytest.raises(UsageError, match=f"^wanted {wanted}.* found '.*push the commit to a branch of another name"):
        check_branch(name)
