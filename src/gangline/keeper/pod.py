"""Entry of a pod (`python -m gangline.keeper.pod`): downloads plan and code from the store, then runs the keeper.

The process stays pid 1: it forwards SIGTERM, reaps orphans and writes the termination message. An error before the
keeper starts ends the pod as the keeper would: exit code, termination message, a line on stderr.
"""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

from gangline.errors import SIGTERM_CODE, GanglineError, error_for
from gangline.keeper import main as keeper
from gangline.keeper.ipc.environment import KeeperEnvironment
from gangline.keeper.ipc.gang_inputs import code_path, plan_path
from gangline.keeper.logs.journal import report_startup_error
from gangline.keeper.logs.rank_files import last_lines
from gangline.spec.gang.pod_output import keeper_line
from gangline.units import format_bytes

_SHM = "/dev/shm"  # noqa: S108  # only its size is read


def preflight() -> str:
    """`locked memory unlimited · /dev/shm 1.07 GB · 8 cores · 2 GPUs`."""
    paths = [path for path in Path("/dev").glob("nvidia*") if path.name.removeprefix("nvidia").isdecimal()]
    return " · ".join((_locked(), _shm(), f"{len(os.sched_getaffinity(0))} cores", f"{len(paths)} GPUs"))


def _locked() -> str:
    """RDMA needs it unlimited; gloo and NCCL over TCP do not."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return f"locked memory {'unlimited' if soft == resource.RLIM_INFINITY else format_bytes(soft)}"


def _shm() -> str:
    """Data loaders with workers and NCCL need it."""
    try:
        disk = os.statvfs(_SHM)
    except OSError as error:
        return f"{_SHM} {error.strerror}"
    return f"{_SHM} {format_bytes(disk.f_blocks * disk.f_frsize)}"


class _AskedToStop(GanglineError):
    exit_code = SIGTERM_CODE
    retry = "free"


def main() -> int:
    """Run the pod; returns the exit code of the gang."""
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, _stop)  # until the keeper installs its handlers
    environ = os.environ
    try:
        environment = KeeperEnvironment.read(environ)
        _print(environment, preflight())
        _print(environment, f"downloading plan and code from {environment.store}")
        _download(environment)
        environ.update(
            GANGLINE_PLAN=str(plan_path(environment)),
            GANGLINE_CODE=str(code_path(environment)),
        )
    except GanglineError as error:
        return report_startup_error(error, environ)
    return keeper.main()


def _print(environment: KeeperEnvironment, text: str) -> None:
    """Write a line of output before the keeper starts."""
    print(keeper_line(environment.node_rank, text), flush=True)  # noqa: T201  # output of the pod


def _download(environment: KeeperEnvironment) -> None:
    """Run the downloader; raises the error that it reports."""
    for name in ("logs", "heartbeat", "out/ranks"):
        (environment.home / name).mkdir(parents=True, exist_ok=True)
    log = environment.home / "logs" / "fetch.log"
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "gangline.keeper.transfer.downloader", str(os.getpid())], stdin=subprocess.DEVNULL,
            stdout=out, stderr=out,
        )  # fmt: skip
    try:
        code = process.wait()
    finally:
        process.kill()
        process.wait()
    if code:
        text = " ".join(last_lines(log, 1)) or f"downloading plan and code ended with exit code {code}"
        raise error_for(code if code > 0 else 128 - code)(text)


def _stop(*_: object) -> NoReturn:
    raise _AskedToStop("asked to stop by SIGTERM, before plan and code were downloaded")


if __name__ == "__main__":
    sys.exit(main())
