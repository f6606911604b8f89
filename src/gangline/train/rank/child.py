"""Entry of a rank that runs a task, forked from the warm parent or started fresh; then `rank.main`."""

import faulthandler
import os
import sys
import traceback
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import cast

from gangline.errors import GanglineError, TrainingError
from gangline.keeper.ipc.signals import STACKS_SIGNAL
from gangline.spec.python_environment import CODE_PATH
from gangline.train.startup import audit, processes


def main() -> None:
    """Entry of `python -m gangline.train.rank.child`; does not return."""
    run_task(os.environ)


def run_task(environ: MutableMapping[str, str]) -> None:
    """Run the rank that `environ` describes; does not return."""
    faulthandler.enable(sys.stderr)
    faulthandler.register(STACKS_SIGNAL, file=sys.stderr, all_threads=True)
    code = environ["GANGLINE_CODE"]
    os.chdir(code)
    folders = environ.get(CODE_PATH, code).split(os.pathsep)
    sys.path[:] = [*folders, *(each for each in sys.path if each not in ("", *folders))]
    end_watch = _start_watches(environ)
    exit_code = _rank_main()
    end_watch()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)  # no destructors: threads of a dead gang's collectives must not keep this one


def _start_watches(environ: MutableMapping[str, str]) -> Callable[[], None]:
    """Start the watches of this process, unless `sitecustomize` has; returns the function that ends its audit."""
    if environ.get("GANGLINE_PROCESSES") and "_gangline_startup.processes" not in sys.modules:
        with suppress(Exception):  # the gate says that nothing is known, and the rank runs
            processes.begin(environ)
    if (begun := sys.modules.get("_gangline_startup.audit")) is not None:
        return cast(Callable[[], None], begun.end)
    if environ.get("GANGLINE_RAN"):
        with suppress(Exception):  # the record lacks a report, and the rank runs
            audit.begin(environ)
    return audit.end


def _rank_main() -> int:
    try:
        from gangline.train.rank.main import main as rank_main  # imports torch, which only a rank needs

        return rank_main()
    except GanglineError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201  # the log of this rank is stderr
        return error.exit_code
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        return TrainingError.exit_code


def redirect(log: Path) -> None:
    """Send stdout and stderr of this process to the end of `log`."""
    handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    for target in (1, 2):
        os.dup2(handle, target)
    os.close(handle)


if __name__ == "__main__":
    main()
