"""Process that serves the rendezvous store of a gang: one TCPStore per generation, on sockets that the keeper opens.

Connections wait in the backlog while the process imports torch, which it does at the first connection: a program that
never uses the store does not pay for the import. `--eager` imports at once; a fork of the warm parent, which has torch
already, calls `serve` alone. The keeper's side is `keeper.ranks.rendezvous_store`.
"""

import importlib
import select
import signal
import socket
import sys
from datetime import timedelta

from gangline.keeper.ipc.signals import die_with_parent


def main(arguments: list[str]) -> None:
    """Serve until the keeper closes the channel. `arguments`: descriptor of the channel, pid of the keeper, options."""
    channel = socket.socket(fileno=int(arguments[0]))
    die_with_parent(int(arguments[1]))
    for each in (signal.SIGINT, signal.SIGTERM):  # ranks that save after a stop request still meet here
        signal.signal(each, signal.SIG_IGN)
    if "--eager" in arguments:
        importlib.import_module("torch.distributed")
    serve(channel)


def serve(channel: socket.socket) -> None:
    """Carry out `open` and `close` until the keeper closes the channel."""
    listener: socket.socket | None = None
    stores: list[object] = []
    while True:
        waiting = [channel] if listener is None else [channel, listener]
        ready, _, _ = select.select(waiting, [], [])
        if channel not in ready and listener is not None:
            stores.append(_make_store(listener))
            listener = None
            continue
        command, handles, _, _ = socket.recv_fds(channel, 16, 1)
        if not command:
            return
        stores.clear()
        if listener is not None:
            listener.close()
        listener = socket.socket(fileno=handles[0]) if handles else None
        if command == b"close":
            channel.send(b"closed")


def _make_store(listener: socket.socket) -> object:
    """Serve on `listener`; the store owns it from then on."""
    from torch._C._distributed_c10d import TCPStore  # imports torch, for seconds

    port = listener.getsockname()[1]
    return TCPStore("localhost", port, None, True, timedelta(minutes=5), False, master_listen_fd=listener.detach())


if __name__ == "__main__":
    main(sys.argv[1:])
