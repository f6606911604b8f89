"""The company that a keeper has: none, followers or a leader."""

from collections.abc import Callable
from pathlib import Path

from gangline.errors import ConfigError
from gangline.spec.gang import FIRST_GENERATION
from gangline.spec.plan import Plan
from gangline.train.environment import KeeperEnvironment
from gangline.train.peers.alone import Alone
from gangline.train.peers.company import Company, Keeping
from gangline.train.peers.course import Course
from gangline.train.peers.following import Follower
from gangline.train.peers.leading import Leader
from gangline.train.peers.shape import Sizes


def company_of(environment: KeeperEnvironment, keeper: Keeping, plan: Plan) -> Company:
    """Raises `CapacityError` where the leader's port is in use, `ConfigError` where there is no key."""
    course = Course(
        keeper,
        max_events=plan.recovery.max_events,
        sizes=_sizes_of(environment, plan),
        first=_first_generation(environment.home),
    )
    if environment.num_nodes == 1:
        return Alone(course)
    key = _key_of(environment)
    key()
    if environment.node_rank == 0:
        return Leader(environment, course, key=key)
    return Follower(environment, keeper, key=key)


def _sizes_of(environment: KeeperEnvironment, plan: Plan) -> Sizes:
    here = environment.num_nodes == 1 and environment.on_loopback and plan.device == "cpu"
    worlds = (plan.world_size, *(size.mesh.world_size for size in plan.sizes))
    return Sizes(worlds=worlds, own=plan.world_size, per_node=environment.local_world_size, stretches=here)


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
