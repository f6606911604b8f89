"""Entry of a pod (`python -m gangline.train.pod`): plan and code from the store, then this process is the keeper.

It stays pid 1 from the first line to the last: it forwards SIGTERM, buries orphans, leaves the last word. What goes
wrong before there is a keeper ends the pod as a keeper would: exit code, termination message, a line on stderr.
"""

import os
import signal
import subprocess
import sys
from typing import NoReturn

from gangline.errors import SIGTERM_CODE, GanglineError, error_for
from gangline.spec.pod import keeper_line
from gangline.train import keeper
from gangline.train.environment import KeeperEnvironment
from gangline.train.last_word import refuse
from gangline.train.pod_files import code_path, plan_path
from gangline.train.preflight import preflight
from gangline.train.rank_files import last_lines


class _AskedToStop(GanglineError):
    exit_code = SIGTERM_CODE
    retry = "free"


def main() -> int:
    """Exit code of the gang."""
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, _stop)  # until the keeper has its own
    try:
        environment = KeeperEnvironment.read(os.environ)
        _say(environment, preflight())
        _say(environment, f"fetching plan and code from {environment.store}")
        _fetch(environment)
        os.environ.update(
            GANGLINE_PLAN=str(plan_path(environment)),
            GANGLINE_CODE=str(code_path(environment)),
        )
    except GanglineError as error:
        return refuse(error, os.environ)
    return keeper.main()


def _say(environment: KeeperEnvironment, text: str) -> None:
    """Before there is a keeper, a pod has no other voice."""
    print(keeper_line(environment.node_rank, text), flush=True)  # noqa: T201  # stdout is what pods are read by


def _fetch(environment: KeeperEnvironment) -> None:
    """In a process of its own. Raises what that one said."""
    for name in ("logs", "heartbeat", "out/ranks"):
        (environment.home / name).mkdir(parents=True, exist_ok=True)
    log = environment.home / "logs" / "fetch.log"
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "gangline.train.fetch", str(os.getpid())], stdin=subprocess.DEVNULL,
            stdout=out, stderr=out,
        )  # fmt: skip
    try:
        code = process.wait()
    finally:
        process.kill()
        process.wait()
    if code:
        words = " ".join(last_lines(log, 1)) or f"fetching plan and code ended with code {code}"
        raise error_for(code if code > 0 else 128 - code)(words)


def _stop(*_: object) -> NoReturn:
    raise _AskedToStop("asked to stop by SIGTERM, before plan and code were here")


if __name__ == "__main__":
    sys.exit(main())
