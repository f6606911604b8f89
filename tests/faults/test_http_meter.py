"""Where requests begin, however the bytes are cut."""

from hypothesis import given
from hypothesis import strategies as st

from gangline.faults.proxy import RequestMeter

bodies = st.binary(max_size=40)


def request(body, length="Content-Length"):
    return b"PUT /a HTTP/1.1\r\nHost: x\r\n%s: %d\r\n\r\n%s" % (length.encode(), len(body), body)


@given(st.lists(bodies, min_size=1, max_size=5), st.lists(st.integers(1, 60), max_size=30), st.booleans())
def test_starts_are_found_at_any_cut(contents, cuts, is_lower):
    requests = [request(body, "content-length" if is_lower else "Content-Length") for body in contents]
    stream = b"".join(requests)
    wanted = [sum(map(len, requests[:i])) for i in range(len(requests))]
    meter, found, at = RequestMeter(), [], 0
    for size in [*cuts, len(stream)]:
        chunk = stream[at : at + size]
        found += [at + offset for offset in meter.starts(chunk)]
        at += len(chunk)
    assert found == wanted


def test_request_without_body_ends_with_its_head():
    meter = RequestMeter()
    get = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    assert meter.starts(get * 3) == [0, len(get), 2 * len(get)]


def test_bytes_that_are_no_http_are_one_request():
    meter = RequestMeter()
    assert meter.starts(b"\x16\x03\x01\x02\x00 a TLS hello, say") == [0]
    assert meter.starts(b"GET / HTTP/1.1\r\n\r\n" * 3) == []


def test_body_of_unknown_length_is_one_request():
    meter = RequestMeter()
    head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert meter.starts(head + b"4\r\nGET \r\n0\r\n\r\n") == [0]
    assert meter.starts(b"GET / HTTP/1.1\r\n\r\n") == []
