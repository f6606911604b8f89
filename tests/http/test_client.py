"""Requests to servers that misbehave: what became of each request, and how long it took."""

import socket
import threading
import time
from contextlib import contextmanager, suppress

import pytest

from gangline.http.client import BodyTooLarge, HttpClient, TimeLimits
from gangline.http.retry import (
    Deadline,
    NotCarriedOut,
    OutcomeUnknown,
    ReadTimeout,
    RetryPolicy,
    TlsFailed,
    retry,
    retry_after_seconds,
)

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"


@contextmanager
def server(answer):
    """A server whose connections `answer` handles, each in a thread of its own; yields its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                threading.Thread(target=handle, args=(connection,), daemon=True).start()

        def handle(connection):
            with connection, suppress(OSError):
                answer(connection)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/x"
        listening.shutdown(socket.SHUT_RDWR)


def answering(*pieces, every_seconds=0.0):
    def answer(connection):
        connection.recv(65536)
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(every_seconds)

    return answer


def test_an_answer_of_any_status_is_an_answer():
    with server(
        answering(b"HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 2\r\n\r\nno")
    ) as url:
        found = HttpClient().request("GET", url)
    assert (found.status, found.headers["location"], found.data) == (307, "http://127.0.0.1:9/", b"no")


def test_a_request_that_found_no_connection_was_not_carried_out():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with pytest.raises(NotCarriedOut, match=r"no connection to 127\.0\.0\.1: .*refused"):
            HttpClient().request("POST", f"http://127.0.0.1:{free.getsockname()[1]}/")


@pytest.mark.parametrize("pieces", [(), (b"HTTP/1.",), (HEAD, b"123")])
def test_of_a_request_whose_answer_breaks_off_nothing_is_known(pieces):
    with server(answering(*pieces)) as url, pytest.raises(OutcomeUnknown):
        HttpClient().request("POST", url, body=b"x")


def test_a_server_that_falls_silent_is_a_read_timeout():
    with server(lambda connection: connection.recv(1 << 16) and time.sleep(5)) as url, pytest.raises(ReadTimeout):
        HttpClient().request("GET", url, limits=TimeLimits(silence_seconds=0.2))


@pytest.mark.parametrize("drip", [HEAD, HEAD[:20] + b"X-Long: " + b"y" * 40, b"HTTP/1.1 200 OK\r\n\r\n" + b"z" * 60])
def test_head_and_body_that_drip_end_by_the_deadline(drip):
    began = time.monotonic()
    dripping = answering(*(bytes([each]) for each in drip * 9), every_seconds=0.05)
    with server(dripping) as url, pytest.raises(OutcomeUnknown):
        HttpClient().request("GET", url, deadline=Deadline(0.5))
    assert time.monotonic() - began < 2


def test_a_body_that_goes_out_slowly_is_not_silence():
    """16 MiB in pieces, each within the limit, all together for longer than it."""
    size, taken = 16 << 20, []

    def answer(connection):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        while sum(taken) < size:
            taken.append(len(connection.recv(1 << 18)))
            time.sleep(0.01)
        connection.sendall(HEAD + b"12345")

    began = time.monotonic()
    with server(answer) as url:
        found = HttpClient().request("PUT", url, body=bytes(size), limits=TimeLimits(connect_seconds=0.4))
    assert found.status == 200
    assert time.monotonic() - began > 0.4


def test_an_answer_is_read_up_to_its_limit():
    with server(answering(b"HTTP/1.1 200 OK\r\n\r\n", *[b"x" * 1000] * 50)) as url, pytest.raises(BodyTooLarge):
        HttpClient().request("GET", url, max_bytes=10_000)


def test_a_server_without_tls_is_distinguished_from_one_that_is_away():
    with server(answering(b"HTTP/1.1 400 Bad\r\n\r\n")) as url, pytest.raises(TlsFailed):
        HttpClient().request("GET", url.replace("http:", "https:"))
    with server(lambda connection: None) as url, pytest.raises(OutcomeUnknown):
        HttpClient().request("GET", url.replace("http:", "https:"))


def test_tries_end_with_the_deadline_the_attempts_or_an_error_that_is_not_retried():
    def failing(error):
        def attempt():
            tries.append(error)
            raise error

        return attempt

    quick = RetryPolicy(initial_seconds=0.01, max_seconds=0.02, jitter_seconds=0.0)
    for error, options, expected in (
        (NotCarriedOut("busy"), {"policy": RetryPolicy(initial_seconds=0.01, attempts=3)}, 3),
        (OutcomeUnknown("lost"), {"is_retried": lambda error: isinstance(error, NotCarriedOut)}, 1),
        (NotCarriedOut("busy", retry_after_seconds=60.0), {}, 1),
        (TlsFailed("certificate"), {}, 1),
    ):
        tries = []
        with pytest.raises(type(error)):
            retry(failing(error), deadline=Deadline(5.0), **{"policy": quick} | options)
        assert len(tries) == expected
    tries, began = [], time.monotonic()
    with pytest.raises(NotCarriedOut):
        retry(failing(NotCarriedOut("busy")), deadline=Deadline(0.3), policy=quick)
    assert len(tries) > 3
    assert time.monotonic() - began < 2


@pytest.mark.parametrize(
    ("text", "seconds"), [("3", 3.0), ("", None), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("-1", None)]
)
def test_retry_after_is_read_in_seconds(text, seconds):
    assert retry_after_seconds({"Retry-After": text}) == seconds
