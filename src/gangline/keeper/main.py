"""Entry of the keeper, started by a launcher once per node (`python -m gangline.keeper.main`); standard library only.

It reads environment and plan, makes sure that only one keeper runs per node, and owns the folder in memory that holds
copies of checkpoints. The name of the folder has the pid of the keeper, so that a later keeper can remove the folder of
a killed one.
"""

import fcntl
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from gangline.errors import CapacityError, ConfigError, GanglineError
from gangline.keeper.ipc.environment import KeeperEnvironment
from gangline.keeper.ipc.gang_inputs import secret_environ
from gangline.keeper.ipc.signals import adopt_orphans
from gangline.keeper.logs.journal import Journal, end_of_error, report_startup_error
from gangline.keeper.node_agent import Keeper
from gangline.procfs import is_alive, start_time
from gangline.spec.plan import Plan

MEMORY = Path("/dev/shm")  # noqa: S108  # file system in memory
_NAME = re.compile(r"gangline-copies-(\d+)-(\d+)-(\d+)")


@contextmanager
def copy_folder(memory: Path = MEMORY) -> Iterator[Path | None]:
    """Folder in memory for the life of this process; removes those of dead keepers. None: no memory file system."""
    folder = _make_folder(memory)
    try:
        yield folder
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)  # a later keeper removes the rest


def _make_folder(memory: Path) -> Path | None:
    folder = memory / f"gangline-copies-{_namespace()}-{os.getpid()}-{start_time(os.getpid())}"
    try:
        _remove_dead(memory)
        folder.mkdir(mode=0o700)
    except OSError:
        return None
    return folder


def _remove_dead(memory: Path) -> None:
    """Remove the folders of dead keepers of this pid namespace; those of other containers stay."""
    for path in memory.iterdir():
        owner = _NAME.fullmatch(path.name)
        if owner and int(owner[1]) == _namespace() and not is_alive(int(owner[2]), int(owner[3])):
            shutil.rmtree(path, ignore_errors=True)


def _namespace() -> int:
    """Pid namespace of this process: containers may share the memory file system, but not pids."""
    return Path("/proc/self/ns/pid").stat().st_ino


def main() -> int:
    """Run the keeper; returns the exit code of the gang, 10 with a line on stderr for a wrong environment or plan."""
    adopt_orphans()
    environ = os.environ
    try:
        return _run(KeeperEnvironment.read(environ), environ)
    except GanglineError as error:
        return report_startup_error(error, environ)


def _run(environment: KeeperEnvironment, environ: Mapping[str, str]) -> int:
    for name in ("logs", "heartbeat", "processes", "out/ranks"):
        (environment.home / name).mkdir(parents=True, exist_ok=True)
    os.chdir(environment.home)
    with _node_lock(environment), copy_folder() as copies:
        extra = {} if copies is None else {"GANGLINE_COPIES": str(copies)}
        extra |= secret_environ(environment.key_file.parent)
        try:
            keeper = Keeper(environment, _read_plan(environment), {**environ, **extra})
        except ConfigError as error:
            Journal(environment.home, environment.node_rank).end(end_of_error(error))
            raise
        return keeper.run().exit_code


@contextmanager
def _node_lock(environment: KeeperEnvironment) -> Iterator[None]:
    """Lock of this node: a launcher that died at the wrong moment may have started two keepers; the second one ends."""
    path = environment.home / f"keeper-{environment.node_rank}.lock"
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CapacityError(
                f"node {environment.node_rank} already has a running keeper, in {environment.home}"
            ) from error
        yield


def _read_plan(environment: KeeperEnvironment) -> Plan:
    try:
        plan = Plan.from_json(environment.plan.read_bytes())
    except OSError as error:
        raise ConfigError(f"GANGLINE_PLAN={environment.plan}: cannot read the plan: {error.strerror}") from error
    if plan.world_size != environment.world_size:
        raise ConfigError(
            f"the plan has {plan.world_size} ranks, WORLD_SIZE is {environment.world_size}; they must be equal"
        )
    return plan


if __name__ == "__main__":
    sys.exit(main())
