"""Environment variables of a gang: names and formats, for keeper and ranks.

A launcher sets the variables of `KeeperEnvironment`; the keeper adds those of `RankEnvironment` for each rank.
"""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from gangline.errors import ConfigError, IntegrityError
from gangline.spec.gang.driver_orders import SHARDS_KEY, ShardAccess
from gangline.spec.gang.podset import DEADLINE_KEY, SITE_DEADLINE
from gangline.spec.program_files import OUTPUTS_VARIABLE, OutputsRequest
from gangline.spec.python_environment import environ_of_interpreter, environ_of_this_interpreter

T = TypeVar("T")
StartMethod = Literal["auto", "fork", "spawn"]
TORCHRUN = (
    "RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
    "TORCHELASTIC_USE_AGENT_STORE",
)  # fmt: skip
"""Variables of torchrun that say that there are other ranks."""
OWN_NAME = "GANGLINE_"
"""Prefix that hides them from a program that runs on its own."""
PROCESS: Mapping[str, str] = os.environ
"""Environment of this process."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GangEnvironment:
    """Variables that keeper and ranks of one node share."""

    node_rank: int
    world_size: int
    local_world_size: int
    master_addr: str
    master_port: int
    run: str
    gang: str
    home: Path
    """Folder of the gang; `spec.gang` describes its layout."""
    plan: Path
    code: Path
    store: str
    """URL as `storage.open.open_store` reads it."""
    store_credentials_file: Path | None
    store_socket: Path | None = None
    """Folder with the socket to the store's server, in a sandbox; None: the server is dialled."""
    key_file: Path
    """Raw HMAC key of checkpoint manifests."""
    grace_seconds: float
    metrics_port: int | None
    """Port for the metrics of local rank 0; None: they are not served."""
    shards: ShardAccess = ShardAccess()
    """Cache and sources of its data sets."""
    mailbox: Path | None = None
    """Folder that its coordinator of a federation shares with it alone; None: one in the folder of the gang."""

    @property
    def out(self) -> Path:
        """Folder that is mirrored to the store."""
        return self.home / "out"

    @property
    def on_loopback(self) -> bool:
        """All nodes are on this machine."""
        return self.master_addr in ("127.0.0.1", "localhost")


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchdogLimits:
    """Seconds without progress that the watchdog allows."""

    start: float = 300.0
    """Time from the start of the process to its first beat."""
    first: float = 600.0
    """Time from the first beat to the first step."""
    extra: float = 10.0
    """Time on top of twice the median of the last 20 steps."""


DEFAULT_LIMITS = WatchdogLimits()


@dataclass(frozen=True, kw_only=True, slots=True)
class KeeperEnvironment(GangEnvironment):
    """Variables that a launcher sets for the keeper of a node."""

    limits: WatchdogLimits
    start_method: StartMethod
    """`fork` from a warm parent, `spawn` fresh interpreters, `auto`: fork where it is safe."""
    deadline_seconds: float | None
    """Time after which the gang is stopped; None: never."""
    deadline_key: str
    """Key of a file that set it."""
    num_nodes: int
    control_port: int
    """Port of the keeper of node 0, for the keepers of the other nodes; unused by a gang of one node. 0: the keeper of
    node 0 takes a free one, which the others find in the folder `home` that they share."""
    ready_port: int | None
    """Open while all ranks of this node have joined; None: there is no readiness port."""
    rejoin_seconds: float
    """Time that the others wait for a lost node."""
    silence_seconds: float
    """Time without any message after which a keeper counts as lost."""
    fetch_seconds: float
    """Time that a pod has to get plan and code from its store."""
    termination_log: Path | None
    """File for the termination message of a pod; None: this is not a pod."""
    outputs: OutputsRequest | None
    """Files of the code folder to collect at the end; None: none."""
    python: str | None
    """Interpreter of the ranks, from the commit's environment; None: the keeper's."""

    @property
    def metrics_writers(self) -> Path:
        """Folder in which each rank of this node that wrote the metrics file leaves an empty file with its number."""
        return self.home / "metrics-writers"

    @property
    def processes(self) -> Path:
        """Folder in which each rank of this node has a file that its processes report to."""
        return self.home / "processes"

    @property
    def rank_python(self) -> str:
        """Interpreter that runs the ranks."""
        return self.python or sys.executable

    @property
    def rank_prefix(self) -> Path:
        """Environment of that interpreter: what `sys.prefix` is in it."""
        return Path(self.python).parent.parent if self.python else Path(sys.prefix)

    def of_ranks(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The keeper's `environ` for processes that run in the Python of the ranks."""
        if self.python:
            return environ_of_interpreter(self.python, environ)
        return environ_of_this_interpreter(environ)

    @property
    def ping_seconds(self) -> float:
        """Interval between pings of an idle keeper."""
        return self.silence_seconds / 6

    @property
    def ranks(self) -> range:
        """Ranks of this node."""
        first = self.node_rank * self.local_world_size
        return range(first, first + self.local_world_size)

    @staticmethod
    def read(environ: Mapping[str, str] = PROCESS) -> "KeeperEnvironment":
        """Raises `ConfigError` that names the variable."""
        gang = _read_gang(environ)
        local, world = gang.local_world_size, gang.world_size
        if world % local or not 0 <= gang.node_rank < world // local:
            raise ConfigError(
                f"NODE_RANK={gang.node_rank} LOCAL_WORLD_SIZE={local} WORLD_SIZE={world} do not fit; "
                "wanted a whole number of nodes and a node rank below it"
            )
        limits = WatchdogLimits(
            start=_read(environ, "GANGLINE_WATCHDOG_START_SECONDS", _positive, DEFAULT_LIMITS.start),
            first=_read(environ, "GANGLINE_WATCHDOG_FIRST_SECONDS", _positive, DEFAULT_LIMITS.first),
            extra=_read(environ, "GANGLINE_WATCHDOG_EXTRA_SECONDS", _positive, DEFAULT_LIMITS.extra),
        )
        return KeeperEnvironment(
            **_fields(gang),
            limits=limits,
            start_method=_read(environ, "GANGLINE_START_METHOD", _start_method, "auto"),
            deadline_seconds=_read(environ, "GANGLINE_DEADLINE_SECONDS", _positive, None),
            deadline_key=_read(environ, DEADLINE_KEY, str, SITE_DEADLINE),
            num_nodes=world // local,
            control_port=_read(environ, "GANGLINE_CONTROL_PORT", _port, 29501),
            ready_port=_read(environ, "GANGLINE_READY_PORT", _port, None),
            rejoin_seconds=_read(environ, "GANGLINE_REJOIN_SECONDS", _positive, 600.0),
            silence_seconds=_read(environ, "GANGLINE_SILENCE_SECONDS", _positive, 30.0),
            fetch_seconds=_read(environ, "GANGLINE_FETCH_SECONDS", _positive, 120.0),
            termination_log=_read(environ, "GANGLINE_TERMINATION_LOG", Path, None),
            outputs=_read(environ, OUTPUTS_VARIABLE, _outputs, None),
            python=_read(environ, "GANGLINE_PYTHON", str, None),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class RankEnvironment(GangEnvironment):
    """Variables that the keeper sets for a rank."""

    rank: int
    local_rank: int
    generation: int
    """Number of starts of this gang before this one."""
    save_every: int | None
    """Steps between saves in this generation; None: those of the plan."""
    copies: Path | None
    """Folder of the keeper for copies of checkpoints, in memory; None: the node has no room for copies."""
    heartbeat: Path

    @staticmethod
    def read(environ: Mapping[str, str] = PROCESS) -> "RankEnvironment":
        """Raises `ConfigError` that names the variable."""
        environ = {name: environ[OWN_NAME + name] for name in TORCHRUN if OWN_NAME + name in environ} | dict(environ)
        gang = _read_gang(environ)
        rank = _read(environ, "RANK", _count)
        if rank >= gang.world_size:
            raise ConfigError(f"RANK={rank} is not below WORLD_SIZE={gang.world_size}")
        return RankEnvironment(
            **_fields(gang),
            rank=rank,
            local_rank=_read(environ, "LOCAL_RANK", _count),
            generation=_read(environ, "GANGLINE_GENERATION", _count),
            save_every=_read(environ, "GANGLINE_SAVE_EVERY", int, None),
            copies=_read(environ, "GANGLINE_COPIES", Path, None),
            heartbeat=_read(environ, "GANGLINE_HEARTBEAT", Path),
        )


def current_rank() -> RankEnvironment | None:
    """Environment of this process; None: no keeper started it, it runs on its own.

    Raises:
        ConfigError: A variable is missing or has a wrong value; it is named.
    """
    return RankEnvironment.read() if "GANGLINE_GENERATION" in PROCESS else None


def termination_log(environ: Mapping[str, str]) -> Path | None:
    """File for the termination message of a pod; None: this is not a pod."""
    path = environ.get("GANGLINE_TERMINATION_LOG")
    return Path(path) if path else None


def fault_order(environ: Mapping[str, str] = PROCESS) -> str | None:
    """Fault that a drill injects into this gang, as JSON of `train.rank.faulty_task`; None: none."""
    return environ.get("GANGLINE_STRIKE")


def heartbeat_path(environ: Mapping[str, str] = PROCESS) -> Path | None:
    """Heartbeat file of this rank; None outside a gang."""
    path = environ.get("GANGLINE_HEARTBEAT")
    return Path(path) if path else None


def _read_gang(environ: Mapping[str, str]) -> GangEnvironment:
    return GangEnvironment(
        node_rank=_read(environ, "NODE_RANK", _count, 0),
        world_size=_read(environ, "WORLD_SIZE", _whole),
        local_world_size=_read(environ, "LOCAL_WORLD_SIZE", _whole),
        master_addr=_read(environ, "MASTER_ADDR", str),
        master_port=_read(environ, "MASTER_PORT", _port),
        run=_read(environ, "GANGLINE_RUN", str),
        gang=_read(environ, "GANGLINE_GANG", str),
        home=_read(environ, "GANGLINE_HOME", Path),
        plan=_read(environ, "GANGLINE_PLAN", Path),
        code=_read(environ, "GANGLINE_CODE", Path),
        store=_read(environ, "GANGLINE_STORE", str),
        store_credentials_file=_read(environ, "GANGLINE_STORE_CREDENTIALS_FILE", Path, None),
        store_socket=_read(environ, "GANGLINE_STORE_SOCKET", Path, None),
        key_file=_read(environ, "GANGLINE_KEY_FILE", Path),
        grace_seconds=_read(environ, "GANGLINE_GRACE_SECONDS", _positive, 30.0),
        metrics_port=_read(environ, "GANGLINE_METRICS_PORT", _port, None),
        shards=_read(environ, SHARDS_KEY, _shards, ShardAccess()),
        mailbox=_read(environ, "GANGLINE_MAILBOX", Path, None),
    )


_REQUIRED = object()


def _read(environ: Mapping[str, str], name: str, parse: Callable[[str], T], default: object = _REQUIRED) -> T:
    text = environ.get(name, "")
    if not text and default is _REQUIRED:
        raise ConfigError(f"{name} is not set; a launcher sets it, see gangline.keeper.ipc.environment")
    if not text:
        return cast(T, default)
    try:
        return parse(text)
    except ValueError as error:
        raise ConfigError(f"{name}={text!r}: wanted {error}") from error


def _count(text: str) -> int:
    if not text.isdecimal():
        raise ValueError("a whole number, 0 or more")
    return int(text)


def _whole(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError("a whole number, 1 or more")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise ValueError("a port, 0 to 65535")
    return int(text)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 < value < float("inf"):
        raise ValueError("seconds above 0")
    return value


def _outputs(text: str) -> OutputsRequest:
    try:
        return OutputsRequest.from_json(text)
    except IntegrityError as error:
        raise ValueError(f"the outputs to collect, as JSON: {error}") from error


def _shards(text: str) -> ShardAccess:
    try:
        return ShardAccess.from_json(text)
    except IntegrityError as error:
        raise ValueError(f"cache and sources of data sets, as JSON: {error}") from error


def _start_method(text: str) -> StartMethod:
    if text not in ("auto", "fork", "spawn"):
        raise ValueError("auto, fork or spawn")
    return cast(StartMethod, text)


def _fields(gang: GangEnvironment) -> dict[str, Any]:
    return {name: getattr(gang, name) for name in GangEnvironment.__dataclass_fields__}
