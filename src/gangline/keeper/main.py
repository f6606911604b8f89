"""Entry of the keeper, started by a launcher once per node (`python -m gangline.keeper.main`); standard library only.

It reads environment and plan, makes sure that one keeper runs per node, and owns the folder in memory that holds
copies of checkpoints: the folder is named after the keeper, so that a later keeper can remove what a killed one left.
"""

import fcntl
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gangline.errors import CapacityError, ConfigError, GanglineError
from gangline.keeper.ipc.environment import KeeperEnvironment
from gangline.keeper.ipc.gang_inputs import secret_environ
from gangline.keeper.ipc.parent_watch import adopt_orphans
from gangline.keeper.logs.journal import Journal, end_of_error, report_startup_error
from gangline.keeper.node_agent import Keeper
from gangline.procfs import is_alive, start_time
from gangline.spec.plan import Plan

MEMORY = Path("/dev/shm")  # noqa: S108  # what the system offers as files in memory
_NAME = re.compile(r"gangline-copies-(\d+)-(\d+)-(\d+)")


@contextmanager
def copy_folder(memory: Path = MEMORY) -> Iterator[Path | None]:
    """A folder of this process while it lives, once those of dead ones are gone; None: there is no memory for one."""
    folder = _make(memory)
    try:
        yield folder
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)  # what cannot be removed now is swept later


def _make(memory: Path) -> Path | None:
    folder = memory / f"gangline-copies-{_namespace()}-{os.getpid()}-{start_time(os.getpid())}"
    try:
        _sweep(memory)
        folder.mkdir(mode=0o700)
    except OSError:
        return None
    return folder


def _sweep(memory: Path) -> None:
    """Remove the folders of keepers that are gone; those of other containers cannot be judged from here."""
    for path in memory.iterdir():
        owner = _NAME.fullmatch(path.name)
        if owner and int(owner[1]) == _namespace() and not is_alive(int(owner[2]), int(owner[3])):
            shutil.rmtree(path, ignore_errors=True)


def _namespace() -> int:
    """Process numbers mean something in one namespace; containers may share their memory folder."""
    return Path("/proc/self/ns/pid").stat().st_ino


def main() -> int:
    """Exit code of the gang; where environment or plan are wrong, 10 and a line on stderr."""
    adopt_orphans()
    try:
        environment = KeeperEnvironment.read(os.environ)
        return _keep(environment)
    except GanglineError as error:
        return report_startup_error(error, os.environ)


def _keep(environment: KeeperEnvironment) -> int:
    for name in ("logs", "heartbeat", "out/ranks"):
        (environment.home / name).mkdir(parents=True, exist_ok=True)
    os.chdir(environment.home)
    with _only_one(environment), copy_folder() as copies:
        own = {} if copies is None else {"GANGLINE_COPIES": str(copies)}
        own |= secret_environ(environment.key_file.parent)
        try:
            keeper = Keeper(environment, _read_plan(environment), {**os.environ, **own})
        except ConfigError as error:
            Journal(environment.home, environment.node_rank).end(end_of_error(error))
            raise
        return keeper.run().exit_code


@contextmanager
def _only_one(environment: KeeperEnvironment) -> Iterator[None]:
    """A launcher that died at the wrong moment may have started this node's keeper twice: the second one goes."""
    path = environment.home / f"keeper-{environment.node_rank}.lock"
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CapacityError(
                f"a keeper of node {environment.node_rank} runs already, in {environment.home}"
            ) from error
        yield


def _read_plan(environment: KeeperEnvironment) -> Plan:
    try:
        plan = Plan.from_json(environment.plan.read_bytes())
    except OSError as error:
        raise ConfigError(f"GANGLINE_PLAN={environment.plan}: cannot read the plan: {error.strerror}") from error
    if plan.world_size != environment.world_size:
        raise ConfigError(
            f"the plan wants {plan.world_size} ranks, WORLD_SIZE is {environment.world_size}; they must agree"
        )
    return plan


if __name__ == "__main__":
    sys.exit(main())
