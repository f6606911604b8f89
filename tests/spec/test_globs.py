"""Globs against the slowest version that is obviously right."""

from fnmatch import fnmatchcase

from hypothesis import given
from hypothesis import strategies as st

from gangline.spec.globs import matches, may_meet

parts = st.text("ab.", min_size=1, max_size=3)
pattern_parts = st.sampled_from(["**", "*", "a*", "?", "a", "b.a", "*.*"])


def oracle(path: list[str], pattern: list[str]) -> bool:
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(oracle(path[count:], pattern[1:]) for count in range(len(path) + 1))
    return bool(path) and fnmatchcase(path[0], pattern[0]) and oracle(path[1:], pattern[1:])


@given(path=st.lists(parts, min_size=1, max_size=5), pattern=st.lists(pattern_parts, min_size=1, max_size=5))
def test_glob_agrees_with_trying_every_way(path, pattern):
    assert matches("/".join(path), "/".join(pattern)) == oracle(path, pattern)


@given(
    path=st.lists(parts, min_size=1, max_size=4), one=st.lists(pattern_parts, min_size=1, max_size=4),
    other=st.lists(pattern_parts, min_size=1, max_size=4),
)  # fmt: skip
def test_patterns_that_both_match_a_path_may_meet(path, one, other):
    if oracle(path, one) and oracle(path, other):
        assert may_meet("/".join(one), "/".join(other))


def test_patterns_that_match_no_path_together_do_not_meet():
    for one, other in [
        ("out/a.pt", "out/b.pt"),
        ("out/*.pt", "other/*.pt"),
        ("*.pt", "out/*.pt"),
        ("out/*", "out/a/b"),
    ]:
        assert not may_meet(one, other)
        assert not may_meet(other, one)
    assert may_meet("out/**", "out/a/model.pt")
    assert may_meet("out/*.pt", "out/model.*")


def test_double_star_represents_any_number_of_folders():
    assert matches("src/a.py", "src/**/*.py")
    assert matches("src/b/c/a.py", "src/**/*.py")
    assert not matches("a.py", "src/**/*.py")
    assert matches("docs/a/b", "docs/**")
    assert not matches("docs/a.md", "*.md")
