"""Lines out of chunks, against splitting the whole."""

from hypothesis import given
from hypothesis import strategies as st

from gangline.launch.kubernetes.client.streaming import bounded_lines

chunks = st.lists(st.binary(max_size=12).map(lambda data: data.replace(b"\x00", b"\n")), max_size=12)


@given(chunks=chunks, max_bytes=st.integers(0, 20))
def test_chunks_do_not_matter_and_long_lines_leave_their_length(chunks, max_bytes):
    whole = b"".join(chunks).split(b"\n")
    if not whole[-1]:
        whole.pop()
    expected = [line if len(line) <= max_bytes else len(line) for line in whole]
    assert list(bounded_lines(chunks, max_bytes=max_bytes)) == expected
