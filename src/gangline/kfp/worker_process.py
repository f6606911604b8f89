"""Starts and ends the worker process: its own process group, a filtered environment, and no process left behind."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from gangline.kfp.run_stage import USERS_TMPDIR
from gangline.kfp.worker import WorkerRequest
from gangline.launch.sandbox.environment import passed_on

TERM_SECONDS = 5.0
_LET_THROUGH = re.compile(
    r"PATH|HOME|LANG|LC_.*|TZ|XDG_.*|PYTHONHASHSEED|GANGLINE_.*|KUBECONFIG|KUBERNETES_.*|SSL_CERT_.*|SSH_AUTH_SOCK|GIT_SSH_COMMAND"
    r"|OMP_NUM_THREADS|(?i:https?_proxy|no_proxy)"
)


@contextmanager
def worker_process(
    request: WorkerRequest, *, environ: Mapping[str, str], secrets: frozenset[str] = frozenset(), log: Path
) -> Iterator["subprocess.Popen[bytes]"]:
    """The worker with `request`; at the end of the block its process group is killed.

    Args:
        request: What to do.
        environ: Of the user; tasks get the variables they need.
        secrets: Names of variables that the site refers to.
        log: File for the output of worker and tasks.
    """
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "gangline.kfp.worker"], stdin=subprocess.PIPE, stdout=out,
            stderr=subprocess.STDOUT, env=worker_environment(environ, secrets, Path(request.folder)),
            start_new_session=True,
        )  # fmt: skip
    try:
        assert process.stdin is not None
        process.stdin.write(request.to_line())
        process.stdin.flush()
        yield process
    finally:
        end_group(process)


def worker_environment(environ: Mapping[str, str], secrets: frozenset[str], folder: Path) -> dict[str, str]:
    """Environment of worker and tasks: that of a gang of this machine, access to clusters, and secrets."""
    own = {name: value for name, value in environ.items() if name in secrets or _LET_THROUGH.fullmatch(name)}
    inherited = passed_on()
    return (
        inherited
        | own
        | {
            USERS_TMPDIR: inherited.get("TMPDIR", tempfile.gettempdir()),
            "TMPDIR": str(folder),
            "PYTHONDONTWRITEBYTECODE": "1",  # definitions may be in a repository of the user
            "PYTHONSAFEPATH": "1",
        }
    )


def end_group(process: "subprocess.Popen[bytes]") -> None:
    """Send SIGTERM to the process group, later SIGKILL; harmless if it has ended."""
    _signal(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + TERM_SECONDS
    while time.monotonic() < deadline and _signal(process.pid, 0):
        process.poll()
        time.sleep(0.02)
    _signal(process.pid, signal.SIGKILL)
    if process.stdin is not None:
        process.stdin.close()
    process.wait()


def _signal(group: int, number: int) -> bool:
    """Whether the group exists."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True
