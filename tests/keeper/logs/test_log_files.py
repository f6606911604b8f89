"""Logs of ranks stay small, whoever prints what."""

from hypothesis import given
from hypothesis import strategies as st

from gangline.keeper.logs.log_files import last_bytes, rotate
from gangline.spec.gang.log_halves import gone_line, older_half, split_gone


def test_log_that_grows_is_moved_aside_and_its_writer_continues(tmp_path):
    log = tmp_path / "0.log"
    with log.open("ab", buffering=0) as writer:
        for number in range(1000):
            writer.write(b"line %04d\n" % number)
            rotate([log, tmp_path / "not-there.log"], max_bytes=2000)
            halves = [each for each in (log, older_half(log)) if each.exists()]
            assert sum(len(split_gone(each.read_bytes())[1]) for each in halves) <= 2100
    lines = b"line 0997\nline 0998\nline 0999\n"
    assert last_bytes(log, 30) == gone_line(10_000 - 30) + lines


def test_burst_between_two_looks_keeps_its_end(tmp_path):
    log = tmp_path / "0.log"
    log.write_bytes(b"".join(b"line %06d\n" % number for number in range(100_000)))
    rotate([log], max_bytes=2400)
    kept = b"".join(b"line %06d\n" % number for number in range(99_900, 100_000))
    assert (log.stat().st_size, older_half(log).read_bytes()) == (0, gone_line(1_200_000 - 1200) + kept)
    assert last_bytes(log, 1200) == gone_line(1_200_000 - 1200) + kept


def test_short_log_stays_as_it_is(tmp_path):
    log = tmp_path / "0.log"
    log.write_bytes(b"hello\n")
    rotate([log], max_bytes=2000)
    assert not older_half(log).exists()
    assert last_bytes(log, 100) == b"hello\n"
    assert last_bytes(tmp_path / "none.log", 100) == b""


def test_a_log_that_was_stored_cut_and_is_continued_counts_all_that_is_gone(tmp_path):
    log = tmp_path / "0.log"
    log.write_bytes(gone_line(5000) + b"line 1\nline 2\nline 3\n")
    rotate([log], max_bytes=20)
    assert older_half(log).read_bytes() == gone_line(5014) + b"line 3\n"
    log.write_bytes(b"line 4\n")
    assert last_bytes(log, 14) == gone_line(5014) + b"line 3\nline 4\n"
    assert last_bytes(log, 13) == gone_line(5021) + b"line 4\n"


LINES = st.lists(st.integers(0, 30), max_size=40)


@given(lengths=LINES, size=st.integers(1, 300), max_bytes=st.integers(16, 200), every=st.integers(1, 8))
def test_what_is_left_of_a_log_is_its_end_in_whole_lines_and_the_rest_is_counted(
    tmp_path_factory, lengths, size, max_bytes, every
):
    log, written = tmp_path_factory.mktemp("logs") / "0.log", b""
    log.touch()
    for number, length in enumerate(lengths):
        line = b"%d" % (number % 10) * length + b"\n"
        written += line
        with log.open("ab") as file:
            file.write(line)
        if number % every == 0:
            rotate([log], max_bytes=max_bytes)
    gone, found = split_gone(last_bytes(log, size))
    assert len(found) <= size
    assert found == written[gone:]
    assert gone in (0, len(written)) or written[gone - 1 : gone] == b"\n"
