"""Coordinator of a keeper: leader, follower or, in a gang with one node, `SingleNode`, which decides alone."""

from collections.abc import Callable, Sequence
from pathlib import Path

from gangline.errors import ConfigError
from gangline.keeper.coordination.follower import Follower
from gangline.keeper.coordination.generations import GenerationController
from gangline.keeper.coordination.leader import Leader
from gangline.keeper.coordination.protocol import CoordinationHost, Coordinator, GenerationStart
from gangline.keeper.coordination.reports import NodeReport
from gangline.keeper.coordination.restart_policy import RestartDecision, stopped_before_start
from gangline.keeper.coordination.world_size import WorldSizes
from gangline.keeper.ipc.environment import KeeperEnvironment
from gangline.keeper.ranks.generation_result import GenerationResult, Halt
from gangline.keeper.ranks.rank_exit import RankExit
from gangline.keeper.ranks.stop_request import StopRequest
from gangline.spec.gang.status import FIRST_GENERATION
from gangline.spec.plan import Plan


def make_coordinator(environment: KeeperEnvironment, keeper: CoordinationHost, plan: Plan) -> Coordinator:
    """Raises `CapacityError` if the leader's port is in use, `ConfigError` if the key cannot be read."""
    controller = GenerationController(
        keeper,
        max_events=plan.recovery.max_events,
        sizes=_sizes_of(environment, plan),
        first=_first_generation(environment.home),
    )
    if environment.num_nodes == 1:
        return SingleNode(controller)
    key = _key_of(environment)
    key()
    if environment.node_rank == 0:
        return Leader(environment, controller, key=key)
    return Follower(environment, keeper, key=key)


def _sizes_of(environment: KeeperEnvironment, plan: Plan) -> WorldSizes:
    here = environment.num_nodes == 1 and environment.on_loopback and plan.device == "cpu"
    worlds = (plan.world_size, *(size.mesh.world_size for size in plan.sizes))
    return WorldSizes(worlds=worlds, own=plan.world_size, per_node=environment.local_world_size, stretches=here)


def _first_generation(home: Path) -> int:
    """Number above all generations that have saved; the downloader of a pod found it in the store."""
    try:
        return int((home / FIRST_GENERATION).read_text())
    except FileNotFoundError:
        return 0


def _key_of(environment: KeeperEnvironment) -> Callable[[], bytes]:
    """Function that reads the gang's key, at each call: the key may be renewed."""

    def read() -> bytes:
        try:
            return environment.key_file.read_bytes()
        except OSError as error:
            raise ConfigError(
                f"GANGLINE_KEY_FILE={environment.key_file}: keepers of several nodes authenticate with the gang's key, "
                f"which cannot be read: {error.strerror}"
            ) from error

    return read


_HERE = (0,)


class SingleNode:
    """Coordinator of a gang with one node."""

    def __init__(self, controller: GenerationController) -> None:
        self._controller = controller
        self._stop: StopRequest | None = None

    @property
    def outcome(self) -> GenerationResult | None:
        return self._controller.outcome

    def next(self, last: NodeReport | None) -> GenerationStart | RestartDecision:
        if last is not None:
            stop, self._stop = self._stop, None
            decision = self._controller.decide([last], stop=stop)
            if not decision.restart:
                return decision
            self._controller.advance(decision)
        if stop := self._controller.keeper.own_stop_request():
            return stopped_before_start(stop, self._controller.generation)
        return self._controller.start(_HERE)

    def exchange_stop(self, own: StopRequest | None) -> StopRequest | None:
        if own is not None or self._stop is None:
            self._stop = own or self._controller.resize(_HERE)
        return self._stop

    def remote_halt(self) -> Halt | None:
        return None

    def report_failure(self, *, secondary: bool, hangs: bool) -> None:
        del secondary, hangs  # there is no other node

    def replace(self, dead: Sequence[RankExit], *, oom_kills: int) -> GenerationStart | None:
        return self._controller.replace(dead, oom_kills=oom_kills)

    def poll(self) -> None:
        return

    def handles(self) -> list[int]:
        return []

    def close(self, decision: RestartDecision) -> None:
        del decision  # there is no other node
