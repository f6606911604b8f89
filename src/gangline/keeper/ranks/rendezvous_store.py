"""Rendezvous store of a gang: a TCPStore in its own process, so that it outlives every rank.

Each generation gets a new store, so that no rank sees stale addresses. The keeper listens itself, passes the socket
on and knows the port at once; connections wait in the backlog while the process imports torch, which it does at the
first connection: a program that never uses the store never pays for it. `--eager` imports at once.
"""

import importlib
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from gangline.errors import CapacityError
from gangline.keeper.ipc.parent_watch import die_with_parent

_BACKLOG = 4096


class RendezvousStore:
    """The keeper's end."""

    def __init__(
        self, host: str, port: int, *, log: Path, eager: bool, python: str, environ: Mapping[str, str]
    ) -> None:
        """Nothing listens before `open`. `port` 0: any free one, a new one each time.

        Served by the torch of `python`, the ranks' own: both ends are of one version.
        """
        self._host, self._port = host, port
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [python, "-m", __name__, str(theirs.fileno()), str(os.getpid()), *["--eager"][: int(eager)]]
        with theirs, log.open("ab") as out:
            self.process = subprocess.Popen(
                command, env=dict(environ), pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    def open(self) -> int:
        """Close the store of the generation before, open a fresh one; its port.

        Raises:
            CapacityError: The demanded port is in use by somebody else.
        """
        self._channel.send(b"close")
        self._channel.recv(16)
        listener = self._listen()
        with listener:
            socket.send_fds(self._channel, [b"open"], [listener.fileno()])
            return int(listener.getsockname()[1])

    def close(self) -> None:
        self._channel.close()
        self.process.kill()
        self.process.wait()

    def _listen(self) -> socket.socket:
        listener = socket.socket()
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self._host, self._port))
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            raise CapacityError(
                f"the rendezvous store wants {self._host}:{self._port}: {error.strerror}; "
                "free the port or give another MASTER_PORT (0: any free one)"
            ) from error
        return listener


def main(arguments: list[str]) -> None:
    channel = socket.socket(fileno=int(arguments[0]))
    die_with_parent(int(arguments[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if "--eager" in arguments:
        importlib.import_module("torch.distributed")
    _serve(channel)


def _serve(channel: socket.socket) -> None:
    """Obey `open` and `close` until the keeper hangs up."""
    listener: socket.socket | None = None
    stores: list[object] = []
    while True:
        waiting = [channel] if listener is None else [channel, listener]
        ready, _, _ = select.select(waiting, [], [])
        if channel not in ready and listener is not None:
            stores.append(_make_store(listener))
            listener = None
            continue
        word, handles, _, _ = socket.recv_fds(channel, 16, 1)
        if not word:
            return
        stores.clear()
        if listener is not None:
            listener.close()
        listener = socket.socket(fileno=handles[0]) if handles else None
        if word == b"close":
            channel.send(b"closed")


def _make_store(listener: socket.socket) -> object:
    """Serve on `listener`, which is not ours from then on."""
    from torch._C._distributed_c10d import TCPStore  # imports torch, for seconds

    port = listener.getsockname()[1]
    return TCPStore("localhost", port, None, True, timedelta(minutes=5), False, master_listen_fd=listener.detach())


if __name__ == "__main__":
    main(sys.argv[1:])
