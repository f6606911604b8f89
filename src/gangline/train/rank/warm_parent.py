"""Warm parent: imports torch once and forks the ranks of every generation, so that a restart costs no import.

The server of the rendezvous store is a fork as well. It outlives this process: it ends when the keeper closes its
channel, and a keeper that dies closes it too.

A single thread, no CUDA, nothing but imports before the fork. It receives one JSON message per process and answers with
pids and, later, the wait statuses of ranks. The keeper's side is `keeper.ranks.rank_processes.WarmParent`.
"""

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

from gangline.keeper.ipc.signals import MESSAGE_BYTES, die_with_parent
from gangline.procfs import num_threads
from gangline.train.rank import rendezvous_server
from gangline.train.rank.child import redirect, run_task

PRELOADED = (
    "torch",
    "torch.distributed",
    "torch.distributed.fsdp",
    "torch.distributed.checkpoint",
    "torch.nn.parallel",
    "torch._dynamo",
    "gangline.train.rank.main",
)
"""Modules that every rank imports; the DDP constructor imports `torch._dynamo`."""


def main(arguments: list[str]) -> None:
    """Serve until the keeper closes the channel. `arguments`: file descriptor of the channel, pid of the keeper."""
    channel = socket.socket(fileno=int(arguments[0]))
    die_with_parent(int(arguments[1]))
    for each in (signal.SIGINT, signal.SIGTERM):  # Slurm stops all processes of a job, and ranks die with this one
        signal.signal(each, signal.SIG_IGN)
    seconds = _preload()
    _send(channel, {"ready": seconds, "threads": num_threads(os.getpid())})
    _serve(channel)


def _preload() -> float:
    """Import the modules of a rank; returns the seconds. Garbage collection, a fifth of them, is off until a fork."""
    start = time.monotonic()
    gc.disable()
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()  # pages stay shared: the collector of a rank does not touch objects from before the fork
    return time.monotonic() - start


def _serve(channel: socket.socket) -> None:
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    ranks: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([channel.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _report_exits(channel, ranks)
        if channel.fileno() in ready:
            message, handles, _, _ = socket.recv_fds(channel, MESSAGE_BYTES, 1)
            if not message:
                return
            _start(channel, ranks, json.loads(message), handles)


def _report_exits(channel: socket.socket, ranks: dict[int, int]) -> None:
    while ranks:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        if pid in ranks:
            _send(channel, {"rank": ranks.pop(pid), "status": status, "mono": time.monotonic()})


def _start(channel: socket.socket, ranks: dict[int, int], order: dict[str, Any], handles: list[int]) -> None:
    """Fork the rank of `order`, or without one the rendezvous server, whose channel is in `handles`."""
    threads, rank = num_threads(os.getpid()), order.get("rank")
    if threads != 1:
        _send(channel, {"rank": rank, "refused": f"the warm parent has {threads} threads"})
        return
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        channel.close()
        if rank is None:
            _become_server(handles[0], Path(order["log"]))
        _become_rank(parent, order)
    for handle in handles:
        os.close(handle)
    if rank is not None:
        ranks[pid] = rank
    _send(channel, {"rank": rank, "pid": pid})


def _become_server(handle: int, log: Path) -> NoReturn:
    """Serve the rendezvous store in this forked process until the keeper closes the channel."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        redirect(log)
        rendezvous_server.serve(socket.socket(fileno=handle))
        code = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(code)


def _become_rank(parent: int, order: dict[str, Any]) -> None:
    """Run the rank in this forked process; never returns."""
    try:
        die_with_parent(parent)
        os.setsid()
        signal.set_wakeup_fd(-1)
        for each in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_DFL)
        redirect(Path(order["log"]))
        os.environ.clear()
        os.environ.update(order["environ"])
        gc.enable()
        run_task(os.environ)
    finally:
        os._exit(1)


def _send(channel: socket.socket, message: dict[str, Any]) -> None:
    channel.send(json.dumps(message).encode())


if __name__ == "__main__":
    main(sys.argv[1:])
