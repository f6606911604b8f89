"""Globs against the slowest version that is obviously right."""

from fnmatch import fnmatchcase

from hypothesis import given
from hypothesis import strategies as st

from gangline.spec.globs import matches

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


def test_double_star_represents_any_number_of_folders():
    assert matches("src/a.py", "src/**/*.py")
    assert matches("src/b/c/a.py", "src/**/*.py")
    assert not matches("a.py", "src/**/*.py")
    assert matches("docs/a/b", "docs/**")
    assert not matches("docs/a.md", "*.md")
