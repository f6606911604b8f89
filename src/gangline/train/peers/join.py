"""The company that a keeper has: none, followers or a leader."""

from collections.abc import Callable
from pathlib import Path

from gangline.errors import ConfigError
from gangline.spec.gang import FIRST_GENERATION
from gangline.train.environment import KeeperEnvironment
from gangline.train.peers.alone import Alone
from gangline.train.peers.company import Company, Keeping
from gangline.train.peers.course import Course
from gangline.train.peers.following import Follower
from gangline.train.peers.leading import Leader


def company_of(environment: KeeperEnvironment, keeper: Keeping, *, max_events: int) -> Company:
    """Raises `CapacityError` where the leader's port is in use, `ConfigError` where there is no key."""
    course = Course(keeper, max_events=max_events, first=_first_generation(environment.home))
    if environment.num_nodes == 1:
        return Alone(course)
    key = _key_of(environment)
    key()
    if environment.node_rank == 0:
        return Leader(environment, course, key=key)
    return Follower(environment, keeper, key=key)


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
