"""The socket and the server behind it: bound before anything else starts, stopped by signal without cutting answers."""

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fastapi import FastAPI

from gangline.errors import ConfigError

CONNECTIONS = 1024
IDLE_SECONDS = 30
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
        bound.bind((host, int(port)))
        bound.listen(CONNECTIONS)
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


def answer(app: FastAPI, bound: socket.socket, *, stopping: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT; `stopping` is called when one has come, before open answers are waited for."""
    import uvicorn

    from gangline.serve.patience import PatientProtocol

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            stopping()
            await super().shutdown(sockets)

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            """As uvicorn's, but a signal that was obeyed is not raised again: what is open here is closed first."""
            before = {each: signal.signal(each, self.handle_exit) for each in (signal.SIGINT, signal.SIGTERM)}
            try:
                yield
            finally:
                for each, handler in before.items():
                    signal.signal(each, handler)

    config = uvicorn.Config(
        app, http=PatientProtocol, log_config=None, access_log=False, server_header=False, lifespan="off",
        limit_concurrency=CONNECTIONS, timeout_keep_alive=IDLE_SECONDS, timeout_graceful_shutdown=LAST_SECONDS,
        h11_max_incomplete_event_size=32768,
    )  # fmt: skip
    Server(config).run(sockets=[bound])
