"""The cluster's one process on the host: it makes the namespaces, keeps the relays, and with it everything ends.

Only one lives at a time, by a lock that the kernel gives back when it dies: who starts a second one by mistake, or
after a kill at any moment, starts nothing. Run as `python -m tests.cluster.rig.host`, by `up`."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

from tests.cluster.rig import daemons, places, process
from tests.cluster.rig.supervise import Supervisor, dies_with

_UNSHARE = (
    "unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc",
)  # fmt: skip


def main() -> int:
    lock = (places.state() / "alive.lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0
    process.write(host_file(), os.getpid())
    asked = _asked_to_end()
    inside = subprocess.Popen(
        [*_UNSHARE, sys.executable, "-m", "tests.cluster.rig.init"],
        stdin=subprocess.DEVNULL,
        preexec_fn=dies_with(os.getpid()),  # noqa: PLW1509  # one thread, so no lock is held
    )
    process.write(init_file(), _child_of(inside))
    relays = Supervisor(places.logs())
    relays.start(daemons.outside())
    relays.watch(until=lambda: bool(asked) or inside.poll() is not None)
    inside.kill()  # it heeds no other signal; its child dies with it, and with that one all of the namespaces
    inside.wait()
    relays.stop()
    return 0


def stop() -> None:
    """End it, and with it the cluster; nothing where none runs."""
    process.end(host_file(), seconds=10)
    process.end(init_file(), seconds=0)  # dead by now; waited for, as the kernel takes a moment


def host_file() -> Path:
    return places.state() / "host.json"


def init_file() -> Path:
    """Names the first process of the namespaces, as the host counts."""
    return places.state() / "init.json"


def _asked_to_end() -> list[int]:
    """Fills at SIGTERM and SIGINT."""
    asked: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        asked.append(number)

    signal.signal(signal.SIGTERM, note)
    signal.signal(signal.SIGINT, note)
    return asked


def _child_of(parent: subprocess.Popen[bytes], *, seconds: float = 10.0) -> int:
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and parent.poll() is None:
        if found := children.read_text().split():
            return int(found[0])
        time.sleep(0.02)
    raise SystemExit(f"unshare made no namespaces, code {parent.poll()}")


if __name__ == "__main__":
    sys.exit(main())
