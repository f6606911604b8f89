"""Logs of ranks stay small, whoever prints what."""

from hypothesis import given
from hypothesis import strategies as st

from gangline.keeper.logs.log_files import last_bytes, rotate, rotated_path


def test_log_that_grows_is_moved_aside_and_its_writer_continues(tmp_path):
    log = tmp_path / "0.log"
    with log.open("ab", buffering=0) as writer:
        for number in range(1000):
            writer.write(b"line %04d\n" % number)
            rotate([log, tmp_path / "not-there.log"], max_bytes=2000)
            assert log.stat().st_size + (rotated_path(log).stat().st_size if rotated_path(log).exists() else 0) <= 2100
    assert last_bytes(log, 30) == b"line 0997\nline 0998\nline 0999\n"


def test_burst_between_two_looks_keeps_its_end(tmp_path):
    log = tmp_path / "0.log"
    log.write_bytes(b"".join(b"line %06d\n" % number for number in range(100_000)))
    rotate([log], max_bytes=2400)
    assert (log.stat().st_size, rotated_path(log).stat().st_size) == (0, 1200)
    assert last_bytes(log, 1200).endswith(b"line 099999\n")


def test_short_log_stays_as_it_is(tmp_path):
    log = tmp_path / "0.log"
    log.write_bytes(b"hello\n")
    rotate([log], max_bytes=2000)
    assert not rotated_path(log).exists()
    assert last_bytes(log, 100) == b"hello\n"
    assert last_bytes(tmp_path / "none.log", 100) == b""


@given(older=st.binary(max_size=50), newer=st.binary(max_size=50), size=st.integers(1, 120))
def test_last_bytes_are_the_end_of_both_halves(tmp_path_factory, older, newer, size):
    log = tmp_path_factory.mktemp("logs") / "0.log"
    rotated_path(log).write_bytes(older)
    log.write_bytes(newer)
    found = last_bytes(log, size)
    assert (older + newer).endswith(found)
    assert len(found) <= size
    assert len(older + newer) > size or found == older + newer
