"""An answer in the lines of a log: whole, or not there; noise and hostile lines around it change nothing."""

from hypothesis import given
from hypothesis import strategies as st

from gangline.spec.gang.one_shot_pod import (
    MOST_LINES_CHARACTERS,
    MOST_STDERR_BYTES,
    MOST_STDOUT_BYTES,
    ModuleOutput,
    from_lines,
    to_lines,
)

answers = st.builds(
    ModuleOutput,
    exit_code=st.none() | st.integers(0, 255),
    stdout=st.binary(max_size=30_000),
    stderr=st.binary(max_size=30_000),
)
noise = st.lists(st.text(max_size=40).filter(lambda text: not text.startswith("\x1e")), max_size=5)


@given(answer=answers, before=noise, after=noise)
def test_answer_is_read_as_it_was_written(answer, before, after):
    lines = list(to_lines(answer))
    assert from_lines([*before, *lines, *after]) == answer
    assert max(map(len, lines)) < 16_000
    assert from_lines([*before, *lines[:-1]]) is None, "without its end it is none"


def test_what_is_too_long_is_cut_where_it_says_least():
    long = ModuleOutput(exit_code=0, stdout=b"a" * 9_000_000 + b"z", stderr=b"a" * 9_000_000 + b"z")
    found = from_lines(to_lines(long))
    assert (len(found.stdout), len(found.stderr)) == (MOST_STDOUT_BYTES, MOST_STDERR_BYTES)
    assert (found.stdout[-1:], found.stderr[-1:]) == (b"a", b"z")


@given(
    lines=st.lists(
        st.builds(lambda word, rest: f"\x1e{word} {rest}", st.sampled_from(["stdout", "exit", "x"]), st.text())
    )
)
def test_lines_of_anybody_raise_nothing(lines):
    from_lines(lines)


def test_no_more_is_read_than_an_answer_may_be_long():
    read = []

    def endless():
        while True:
            read.append(1)
            yield "x" * 1_000_000

    assert from_lines(endless()) is None
    assert len(read) <= MOST_LINES_CHARACTERS / 1_000_000 + 1
