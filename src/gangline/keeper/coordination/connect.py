"""Choice of a keeper's coordinator: single node, leader or follower."""

from collections.abc import Callable
from pathlib import Path

from gangline.errors import ConfigError
from gangline.keeper.coordination.follower import Follower
from gangline.keeper.coordination.generations import GenerationController
from gangline.keeper.coordination.leader import Leader
from gangline.keeper.coordination.protocol import CoordinationHost, Coordinator
from gangline.keeper.coordination.single_node import SingleNode
from gangline.keeper.coordination.world_size import WorldSizes
from gangline.keeper.ipc.environment import KeeperEnvironment
from gangline.spec.gang.status import FIRST_GENERATION
from gangline.spec.plan import Plan


def make_coordinator(environment: KeeperEnvironment, keeper: CoordinationHost, plan: Plan) -> Coordinator:
    """Raises `CapacityError` where the leader's port is in use, `ConfigError` where there is no key."""
    course = GenerationController(
        keeper,
        max_events=plan.recovery.max_events,
        sizes=_sizes_of(environment, plan),
        first=_first_generation(environment.home),
    )
    if environment.num_nodes == 1:
        return SingleNode(course)
    key = _key_of(environment)
    key()
    if environment.node_rank == 0:
        return Leader(environment, course, key=key)
    return Follower(environment, keeper, key=key)


def _sizes_of(environment: KeeperEnvironment, plan: Plan) -> WorldSizes:
    here = environment.num_nodes == 1 and environment.on_loopback and plan.device == "cpu"
    worlds = (plan.world_size, *(size.mesh.world_size for size in plan.sizes))
    return WorldSizes(worlds=worlds, own=plan.world_size, per_node=environment.local_world_size, stretches=here)


def _first_generation(home: Path) -> int:
    """Above all that have saved, as who made the folder found it in the store."""
    try:
        return int((home / FIRST_GENERATION).read_text())
    except FileNotFoundError:
        return 0


def _key_of(environment: KeeperEnvironment) -> Callable[[], bytes]:
    """Reads the gang's key each time: it may be renewed."""

    def read() -> bytes:
        try:
            return environment.key_file.read_bytes()
        except OSError as error:
            raise ConfigError(
                f"GANGLINE_KEY_FILE={environment.key_file}: keepers of several nodes know each other by the gang's "
                f"key, and it cannot be read: {error.strerror}"
            ) from error

    return read
