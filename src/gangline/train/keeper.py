"""The keeper: what a launcher starts, once a node (`python -m gangline.train.keeper`); standard library alone.

It starts the rendezvous store (on node 0), the warm parent and the uploader, then one generation of ranks after another
until they are done, somebody asks to stop, or nothing is left to try. It watches, classifies and writes down; it knows
neither torch nor the store. Its files are those of `spec.gang`. This module is its door; the work is in `keeping`.
"""

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from gangline.errors import CapacityError, ConfigError, GanglineError
from gangline.spec.plan import Plan
from gangline.train.copy_folder import copy_folder
from gangline.train.environment import KeeperEnvironment
from gangline.train.journal import Journal
from gangline.train.keeping import Keeper
from gangline.train.last_word import end_by, refuse
from gangline.train.leash import adopt_orphans
from gangline.train.secret_variables import secret_environ


def main() -> int:
    """Exit code of the gang; where environment or plan are wrong, 10 and a line on stderr."""
    adopt_orphans()
    try:
        environment = KeeperEnvironment.read(os.environ)
        return _keep(environment)
    except GanglineError as error:
        return refuse(error, os.environ)


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
            Journal(environment.home, environment.node_rank).end(end_by(error))
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
