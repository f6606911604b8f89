"""Reading a log of two halves, while it is written and rotated, and afterwards."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.keeper.logs.log_files import rotate
from gangline.launch.local.follower import LogTail
from gangline.spec.gang.log_halves import gone_line, older_half, split_gone


@pytest.fixture
def log(tmp_path):
    return tmp_path / "logs" / "0.log"


@pytest.fixture
def tail(tmp_path, log):
    log.parent.mkdir()
    return LogTail(log, below=tmp_path)


def write(log, text):
    with log.open("a") as file:
        file.write(text)


def test_both_halves_are_read_from_a_whole_line_on_and_the_cut_is_marked(log, tail):
    write(log, "one\ntwo\nthree\n")
    rotate([log], max_bytes=24)
    write(log, "four")
    assert tail.lines(ended=True) == ["[gangline: 4 earlier bytes are gone]", "two", "three", "four"]


def test_a_line_that_a_rotation_cuts_in_two_is_one_line(log, tail):
    write(log, "one\ntw")
    rotate([log], max_bytes=8)
    assert tail.lines(ended=False) == ["[gangline: 4 earlier bytes are gone]"]
    write(log, "o\n")
    assert tail.lines(ended=False) == ["two"]


def test_followed_log_is_read_on_over_rotations_and_what_came_and_went_between_two_looks_is_marked(log, tail):
    write(log, "one\n")
    assert tail.lines(ended=False) == ["one"]
    write(log, "two\n")
    rotate([log], max_bytes=8)
    write(log, "three\n")
    assert [tail.lines(ended=False), tail.lines(ended=False)] == [["two"], ["three"]]
    write(log, "lost\nfour\n")
    rotate([log], max_bytes=10)
    assert tail.lines(ended=True) == ["[gangline: 5 earlier bytes are gone]", "four"]


def test_newer_half_that_is_read_before_it_is_truncated_is_read_again_from_its_start(log, tail):
    """Its keeper has moved it aside, and truncates it a moment later."""
    write(log, "one\ntwo\n")
    older_half(log).write_text("one\ntwo\n")
    assert tail.lines(ended=False) == ["one", "two", "one", "two"], "nothing tells that it was not written twice"
    log.write_text("three\n")
    assert tail.lines(ended=False) == ["three"]


def test_no_link_is_followed(log, tail, tmp_path):
    (tmp_path.parent / "secret").write_text("value\n")
    for half in (log, older_half(log)):
        half.symlink_to(tmp_path.parent / "secret")
    assert tail.lines(ended=True) == []


STEPS = st.lists(st.tuples(st.integers(0, 40), st.sampled_from(["write", "rotate", "read"])), max_size=30)


@given(steps=STEPS, max_bytes=st.integers(32, 200))
def test_every_line_is_read_once_and_in_order_or_counted_as_gone(tmp_path_factory, steps, max_bytes):
    folder = tmp_path_factory.mktemp("gang")
    log, tail, written, found = folder / "0.log", LogTail(folder / "0.log", below=folder), b"", []
    for number, (length, step) in enumerate(steps):
        if step == "write":
            line = b"%d" % (number % 10) * length + b"\n"
            written += line
            with log.open("ab") as file:
                file.write(line)
        elif step == "rotate":
            rotate([log], max_bytes=max_bytes)
        else:
            found += tail.lines(ended=False)
    found += tail.lines(ended=True)
    at = 0
    for line in found:
        gone, _ = split_gone(line.encode() + b"\n")
        size = gone or len(line) + 1
        assert gone or written[at : at + size] == line.encode() + b"\n"
        at += size
    assert at == len(written)
    assert gone_line(0) not in "\n".join(found).encode()
