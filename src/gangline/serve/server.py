"""The listening socket and the uvicorn server: bound before anything starts; a signal ends it after open responses."""

import resource
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fastapi import FastAPI

from gangline.errors import ConfigError

if TYPE_CHECKING:
    import uvicorn

CONNECTIONS = 2048
"""Open connections, where the process may have as many files."""
QUEUED = 1024
"""Connections that wait to be accepted."""
ACCEPTED_AT_ONCE = 128
"""Connections that are accepted between two steps of what is being answered: a flood of new ones slows it little."""
OWN_FILES = 1024
"""Files for other purposes than connections: databases, clones, drivers, followed gangs."""
HEAD_BYTES = 16 * 1024
"""Largest line and headers of a request."""
WRITE_SECONDS = 30.0
"""Longest time in which a client takes nothing of an answer that waits for it."""
LAST_SECONDS = 5
"""What answers get to end in after a signal; streams are cut."""


def bind(listen: str) -> socket.socket:
    """A listening socket at `HOST:PORT`; port 0 takes a free one.

    Raises:
        ConfigError: The address is taken, or not of this machine.
    """
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # named, else asyncio leaves Nagle on: 40 ms
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # not on macOS
            bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(WRITE_SECONDS * 1000))
        bound.bind((host, int(port)))
        bound.listen(QUEUED)
    except (OSError, OverflowError) as error:
        bound.close()
        said = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"wanted to listen at {listen}, found: {said}; --listen HOST:PORT names another") from error
    bound.set_inheritable(False)
    return bound


def address_of(bound: socket.socket) -> str:
    """`HOST:PORT` as it really is."""
    host, port = bound.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def serve_until_signal(
    app: FastAPI, bound: socket.socket, *, stopping: Callable[[], None], proxies: Sequence[str] = ()
) -> None:
    """Serve until SIGTERM or SIGINT; `stopping` is called after the signal, before open responses are awaited.

    `X-Forwarded-For` counts if it comes from one of `proxies`, which are addresses and networks.
    """
    create_server(app, stopping=stopping, proxies=proxies).run(sockets=[bound])


def create_server(
    app: FastAPI, *, stopping: Callable[[], None] = lambda: None, proxies: Sequence[str] = ()
) -> "uvicorn.Server":
    """The server as it ships, for tests, too."""
    import uvicorn

    from gangline.serve.web.connections import IDLE_SECONDS, HttpConnection

    class Protocol(HttpConnection):
        limit = raise_file_limit()

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            """Start as uvicorn does, but let the kernel queue more connections than asyncio accepts at once."""
            await super().startup(sockets)
            for sock in sockets or ():
                sock.listen(QUEUED)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            stopping()
            await super().shutdown(sockets)

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            """Handle signals as uvicorn does, but raise no obeyed one again: what is open here is closed first."""
            if threading.current_thread() is not threading.main_thread():
                yield
                return
            before = {each: signal.signal(each, self.handle_exit) for each in (signal.SIGINT, signal.SIGTERM)}
            try:
                yield
            finally:
                for each, handler in before.items():
                    signal.signal(each, handler)

    config = uvicorn.Config(
        app, http=Protocol, log_config=None, access_log=False, server_header=False, lifespan="off",
        forwarded_allow_ips=list(proxies), backlog=ACCEPTED_AT_ONCE, loop="asyncio",
        timeout_keep_alive=IDLE_SECONDS, timeout_graceful_shutdown=LAST_SECONDS,
        h11_max_incomplete_event_size=HEAD_BYTES, ws="none",
    )  # fmt: skip
    return Server(config)


def raise_file_limit() -> int:
    """Connections that may be open: as many as this process may have files, less those that it needs for itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS + OWN_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return CONNECTIONS if soft == resource.RLIM_INFINITY else max(16, min(CONNECTIONS, soft - OWN_FILES))
