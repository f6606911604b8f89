"""What every part of a rank needs at hand: who it is, what it obeys, where it reports. One object a process."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from gangline.errors import GanglineError, LostPeerError
from gangline.spec.plan import Plan
from gangline.storage.open import open_store
from gangline.storage.protocol import ObjectStore
from gangline.train import heartbeat
from gangline.train.environment import RankEnvironment
from gangline.train.loop.clock import STEP_PHASES, Clock
from gangline.train.loop.events import EventLog, last_step
from gangline.train.loop.ledger import RankLedger
from gangline.train.loop.lines import LineFile
from gangline.train.loop.wait import WaitMeter
from gangline.train.rendezvous import Groups

METRICS = "metrics.jsonl"


@dataclass(kw_only=True)
class Context:
    plan: Plan
    rank: int
    device: torch.device
    groups: Groups
    clock: Clock
    events: EventLog
    generation: int = 0
    local_rank: int = 0
    store: ObjectStore | None = None
    """None at a desk: nothing is saved."""
    key: bytes = b""
    out: Path | None = None
    """Folder that is mirrored to the store; None at a desk."""
    data_folder: Path = Path("data")
    metrics: LineFile | None = None
    """Curve of the gang; rank 0's alone."""
    redone_until: int = 0
    """Steps up to here were done by an earlier generation."""
    ledger: RankLedger = field(default_factory=RankLedger)
    waits: WaitMeter = field(default_factory=WaitMeter)
    save_in_flight: Callable[[], None] | None = None
    """Waits for the save under way."""
    stop_asked: bool = False
    """This rank got SIGTERM; the control word tells the others."""
    _told: float = 0.0

    @property
    def data_rank(self) -> int:
        """Place among the ranks that see different samples."""
        return self.rank % self.plan.mesh.data_parallel

    @property
    def data_ranks(self) -> int:
        return self.plan.mesh.data_parallel

    @property
    def checkpoints(self) -> str:
        """Prefix of this run's checkpoints."""
        return f"{self.plan.run_prefix}/checkpoints"

    def phase(self, name: str) -> None:
        """Switch the clock and beat."""
        self.clock.switch(name)
        heartbeat.beat(phase=name)

    @contextmanager
    def during(self, name: str, *, at_most_seconds: float) -> Iterator[None]:
        """A phase that may be silent for so long."""
        heartbeat.expect(at_most_seconds)
        heartbeat.beat(phase=name)
        with self.clock.during(name):
            yield
        heartbeat.beat(phase=self.clock.phase)

    def book(self, *, redone: bool = False) -> dict[str, float]:
        """Close a lap of the clock into the ledger; its seconds by step phase."""
        lap = self.clock.lap()
        self.ledger.book(lap, redone=redone)
        return {name: lap.get(name, 0.0) for name in STEP_PHASES}

    def tell_ledger(self, *, every_seconds: float = 0.0) -> None:
        """Write the ledger down, unless it was within `every_seconds`."""
        now = time.monotonic()
        if now - self._told >= every_seconds:
            self.events.emit("ledger", seconds=dict(self.ledger.seconds))
            self._told = now

    def fail(self, code: int, reason: str) -> None:
        """Last words of a rank that ends by an error; what it was saving is still seen through while peers live."""
        if self.save_in_flight is not None and code != LostPeerError.exit_code:
            try:
                self.save_in_flight()
            except GanglineError as error:
                self.events.emit("save_failed", reason=str(error))
        self.events.emit("done", exit=code, reason=reason)
        self.close()

    def close(self) -> None:
        """Write down what is known; local."""
        self.book()
        self.tell_ledger()
        self.events.close()
        if self.metrics is not None:
            self.metrics.close()

    def obey_sigterm(self) -> None:
        """From now on SIGTERM asks for a save and a leave at the next steps."""
        signal.signal(signal.SIGTERM, self._on_sigterm)

    def _on_sigterm(self, number: int, frame: Any) -> None:
        del number, frame
        self.stop_asked = True


def of_gang(environment: RankEnvironment, plan: Plan, *, device: torch.device, groups: Groups, clock: Clock,
            events: EventLog) -> Context:  # fmt: skip
    """Context of a rank that a keeper started."""
    env = environment
    return Context(
        plan=plan,
        rank=env.rank,
        device=device,
        groups=groups,
        clock=clock,
        events=events,
        generation=env.generation,
        local_rank=env.local_rank,
        store=open_store(env.store, credentials=env.store_credentials_file),
        key=env.key_file.read_bytes(),
        out=env.out,
        metrics=LineFile(env.out / METRICS) if env.rank == 0 else None,
        data_folder=env.home / "data",
        redone_until=last_step(events_path(env)) if env.generation else 0,
    )


def events_path(environment: RankEnvironment) -> Path:
    return environment.out / "ranks" / f"{environment.rank}.jsonl"


def serve_metrics(environment: RankEnvironment, plan: Plan, events: EventLog) -> None:
    """Serve this rank's series where the launcher gave a port; a port in use costs the series, not the training."""
    if environment.metrics_port is None:
        return
    from gangline.metrics.exporter import RankExporter

    port = environment.metrics_port + environment.local_rank
    exporter = RankExporter(environment.run, environment.rank, port, world_size=plan.world_size, steps=plan.steps)
    if exporter.problem is not None:
        events.emit("metrics_not_served", port=port, reason=exporter.problem)
    else:
        events.listeners.append(exporter.observe)
