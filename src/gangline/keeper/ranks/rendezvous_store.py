"""Rendezvous store of a gang: the keeper's side of `train.rank.rendezvous_server`, a TCPStore in its own process.

Where ranks are forked the server is forked too, from the same warm parent: an import of torch less in every gang.
The process outlives every rank. Each generation gets a new store, so that no rank sees stale addresses. The keeper
opens the listening socket and passes it on, so it knows the port at once.
"""

import os
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from gangline.errors import CapacityError
from gangline.keeper.ranks.rank_processes import WarmParent

_BACKLOG = 4096
_SERVER = "gangline.train.rank.rendezvous_server"
"""Module that the process runs; it imports torch, which the keeper does not."""


class RendezvousStore:
    """The keeper's end."""

    def __init__(
        self, host: str, port: int, *, log: Path, eager: bool, python: str, environ: Mapping[str, str],
        warm: WarmParent | None = None,
    ) -> None:  # fmt: skip
        """Nothing listens before `open`. `port` 0: any free one, a new one each time.

        Served by the torch of `python`, the ranks' own: both ends are of one version. `warm`: forks the server, and
        has finished its imports; None: a fresh process imports torch, at once if `eager`.
        """
        self._host, self._port = host, port
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process: subprocess.Popen[bytes] | None = None
        with theirs, log.open("ab") as out:
            if warm is not None:
                self.pid = warm.fork_server(theirs, log=log)
                return
            command = [python, "-m", _SERVER, str(theirs.fileno()), str(os.getpid()), *["--eager"][: int(eager)]]
            self._process = subprocess.Popen(
                command, env=dict(environ), pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
            self.pid = self._process.pid

    def open(self) -> int:
        """Close the store of the generation before, open a fresh one; its port.

        Raises:
            CapacityError: The demanded port is in use by another process.
        """
        self._channel.send(b"close")
        self._channel.recv(16)
        listener = self._listen()
        with listener:
            socket.send_fds(self._channel, [b"open"], [listener.fileno()])
            return int(listener.getsockname()[1])

    def close(self) -> None:
        """End the server; a forked one ends by itself when its channel closes, as an orphan of the keeper."""
        self._channel.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()

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
