"""Context of a rank: identity, plan, process groups, clock, events and store. One object per process."""

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from gangline.checkpoint.node_copies import NodeCopies
from gangline.errors import GanglineError, LostPeerError
from gangline.keeper.ipc.environment import RankEnvironment
from gangline.spec.gang.driver_orders import ShardAccess
from gangline.spec.measurements import PHASES
from gangline.spec.plan import Plan
from gangline.storage.objects.protocol import ObjectStore
from gangline.storage.open import open_store
from gangline.train import heartbeat
from gangline.train.account.clock import PhaseClock, RankLedger, WaitMeter
from gangline.train.account.event_log import EventLog, LineFile, last_step
from gangline.train.account.results import METRICS
from gangline.train.runtime.datasets import RankDatasets
from gangline.train.runtime.device_mesh import Meshes
from gangline.train.runtime.rendezvous import Groups


class RankState(Protocol):
    """State of one rank that is saved, and restored on resume."""

    def state(self) -> dict[str, Tensor]:
        """Name -> tensor that aliases the live one; local."""
        ...

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned on this rank; empty: another number of ranks saved it. Local."""
        ...


@dataclass(kw_only=True)
class RankContext:
    """Identity and services of the rank that this process is."""

    plan: Plan
    rank: int
    device: torch.device
    groups: Groups
    clock: PhaseClock
    events: EventLog
    gang: str = ""
    """Name of the gang; empty outside of one."""
    generation: int = 0
    local_rank: int = 0
    ranks_per_node: int = 1
    store: ObjectStore | None = None
    """None outside a gang: nothing is saved."""
    open_store: Callable[[], ObjectStore] | None = None
    """Opens the store once more, in a forked process; None outside a gang."""
    shards: ShardAccess = ShardAccess()
    """Cache and sources of data sets."""
    secrets: Path | None = None
    """Folder of the gang's secrets; None outside a gang."""
    copies: NodeCopies | None = None
    """Copies of checkpoints in this node's memory; None: none are kept."""
    key: bytes = b""
    out: Path | None = None
    """Folder that is uploaded to the store; None outside a gang."""
    data_folder: Path = Path("data")
    datasets: RankDatasets | None = None
    """Data sets of the plan, once `fetch_data` has opened them; None: it names none."""
    scratch: Path = Path()
    """Folder for state that may be moved from memory to disk."""
    mailbox: Path | None = None
    """Folder that is shared with the coordinator of a federation alone; None: it is one in `scratch`."""
    metrics: LineFile | None = None
    """File of the loss curve; on rank 0 only."""
    save_every: int = 0
    """Steps between saves of this generation; 0: those of the plan."""
    redone_until: int = 0
    """Last step that an earlier generation has already done."""
    ledger: RankLedger = field(default_factory=RankLedger)
    waits: WaitMeter = field(default_factory=WaitMeter)
    meshes: Meshes = field(default_factory=Meshes)
    memories: dict[str, RankState] = field(default_factory=dict)
    """State other than model and optimizer, saved for each rank."""
    step: int = 0
    """Current step, from 1; 0 before the first."""
    save_in_flight: Callable[[], None] | None = None
    """Waits for the save in progress."""
    stop_asked: bool = False
    """This rank received SIGTERM; the control message reports it to the others."""
    _ledger_written: float = 0.0

    @property
    def data_rank(self) -> int:
        """Number among the ranks that see different samples; peers on pp, cp and tp share one."""
        return self.plan.mesh.data_rank(self.rank)

    @property
    def data_ranks(self) -> int:
        """Number of ranks that see different samples."""
        return self.plan.mesh.data_parallel

    @property
    def draws_as(self) -> int:
        """Number of its random stream: tensor-parallel peers share one, so that they drop the same activations."""
        return self.rank // self.plan.mesh.tp

    @property
    def counts_loss(self) -> bool:
        """The losses of this rank enter the sums of the gang."""
        place = self.plan.mesh.coordinates(self.rank)
        return place["tp"] == 0 and place["pp"] == self.plan.loss_place

    @property
    def grad_divisor(self) -> int:
        """Number that summed gradients are divided by; of averaged weights, where replicas drift."""
        mesh = self.plan.mesh
        return mesh.dp_replicate * mesh.dp_shard * mesh.cp

    def node_of(self, rank: int) -> int:
        """Number of the node of `rank` among those that take part."""
        return rank // self.ranks_per_node

    @property
    def checkpoints(self) -> str:
        """Prefix of this run's checkpoints."""
        return f"{self.plan.own_prefix}/checkpoints"

    def phase(self, name: str) -> None:
        """Switch the clock to phase `name`, and send a heartbeat."""
        self.clock.switch(name)
        heartbeat.beat(phase=name)

    @contextmanager
    def during(self, name: str, *, at_most_seconds: float) -> Iterator[None]:
        """A phase that may be silent for `at_most_seconds`; rank 0 writes an event about it."""
        if self.rank == 0:
            self.events.emit("busy", step=self.step or None, phase=name)
        heartbeat.expect(at_most_seconds)
        heartbeat.beat(phase=name)
        with self.clock.during(name):
            yield
        heartbeat.beat(phase=self.clock.phase)

    def book(self, *, redone: bool = False) -> dict[str, float]:
        """Add a lap of the clock to the ledger; returns its seconds by step phase."""
        lap = self.clock.lap()
        self.ledger.book(lap, redone=redone)
        return {name: lap.get(name, 0.0) for name in PHASES}

    def write_ledger(self, *, every_seconds: float = 0.0) -> None:
        """Write the ledger as an event, at most once within `every_seconds`."""
        now = time.monotonic()
        if now - self._ledger_written >= every_seconds:
            clock = self.clock
            self.events.emit("ledger", seconds=dict(self.ledger.seconds), began=clock.began, until=clock.lapped)
            self._ledger_written = now

    def fail(self, code: int, reason: str) -> None:
        """Write the end of a rank by an error; a save in progress is completed first, unless a peer was lost."""
        if self.save_in_flight is not None and code != LostPeerError.exit_code:
            try:
                self.save_in_flight()
            except GanglineError as error:
                self.events.emit("save_failed", reason=str(error))
        self.events.emit("done", exit=code, reason=reason)
        self.close()

    def close(self) -> None:
        """Write the ledger and close events and metrics; local."""
        self.book()
        self.write_ledger()
        self.events.close()
        if self.metrics is not None:
            self.metrics.close()

    def handle_sigterm(self) -> None:
        """Handle SIGTERM from now on as a request to save and end within the next steps."""
        signal.signal(signal.SIGTERM, self._on_sigterm)

    def _on_sigterm(self, number: int, frame: Any) -> None:
        del number, frame
        self.stop_asked = True


def of_gang(environment: RankEnvironment, plan: Plan, *, device: torch.device, groups: Groups, clock: PhaseClock,
            events: EventLog) -> RankContext:  # fmt: skip
    """Context of a rank that a keeper started."""
    env = environment
    opens = partial(open_store, env.store, credentials=env.store_credentials_file, socket_folder=env.store_socket)
    return RankContext(
        plan=plan,
        rank=env.rank,
        device=device,
        groups=groups,
        meshes=Meshes.of(plan, env.rank),
        clock=clock,
        events=events,
        gang=env.gang,
        generation=env.generation,
        local_rank=env.local_rank,
        ranks_per_node=env.local_world_size,
        store=opens(),
        open_store=opens,
        shards=env.shards,
        secrets=env.key_file.parent,
        copies=_copies(env, plan),
        key=env.key_file.read_bytes(),
        out=env.out,
        metrics=LineFile(env.out / METRICS) if env.rank == 0 else None,
        data_folder=env.home / "data",
        scratch=env.home,
        mailbox=env.mailbox,
        save_every=env.save_every or 0,
        redone_until=last_step(events_path(env)) if env.generation and not plan.worker else 0,
    )


def _copies(environment: RankEnvironment, plan: Plan) -> NodeCopies | None:
    peers = plan.checkpoint.peer_copies
    if environment.copies is None or peers == 0:
        return None
    return NodeCopies(environment.copies, environment.node_rank, peers)


def events_path(environment: RankEnvironment) -> Path:
    """File of the events of this rank, which is uploaded to the store."""
    return environment.out / "ranks" / f"{environment.rank}.jsonl"
