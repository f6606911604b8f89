"""Entry point of `gangline join`: one more worker for a run with a parameter server, from another checkout and site.

The worker has the plan of the run's own ones, code and data that are built here and must have the same digests, and a
number of its own. The run's driver knows nothing of it: it meets servers and workers in the store alone. Its own driver
follows its gang under a lease of its own, and adds events to the record.
"""

import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from gangline.build.own_environment import software_versions
from gangline.errors import (
    CancelledError,
    CapacityError,
    ConfigError,
    GanglineError,
    IntegrityError,
    StorageError,
    UsageError,
)
from gangline.launch.protocol import Gang, GangEvent, Launcher
from gangline.line.gangs.attempts import FinishedGang, run_gang
from gangline.line.gangs.follow import GangUnreachable, Interrupted
from gangline.line.gangs.launchers import cluster_inventory, open_launcher
from gangline.line.gangs.many import WORKER
from gangline.line.gangs.podsets import server_labels
from gangline.line.record import runs, states
from gangline.line.record.context import RunContext
from gangline.line.record.joined_workers import (
    JoinedWorker,
    free_numbers,
    joined_prefix,
    put_joined,
    put_left,
    read_joined,
)
from gangline.line.record.observer import Observer, ObserverRelay
from gangline.line.record.store import Change, RecordStore
from gangline.line.request.project_claim import require_owned
from gangline.line.request.targets import parse_target, with_target
from gangline.line.request.trust import rights_of
from gangline.line.run import lease
from gangline.line.run.driver import open_run_workspace
from gangline.line.stages.build import build
from gangline.line.stages.plan import checked_sandbox
from gangline.line.stages.run_stage import line_of
from gangline.planner.plans import worker_plan
from gangline.signing.keys import signing_key
from gangline.spec.config.site import Site
from gangline.spec.identity import worker_gang
from gangline.spec.record import Driver, Record
from gangline.spec.run_flags import FINAL, stage
from gangline.storage.objects.protocol import ObjectStore
from gangline.units import counted, now

SECONDS_BETWEEN_NOTES = 10.0


def join_run(repo: Path, run: str, *, site: Site, environ: Mapping[str, str], observer: Observer) -> JoinedWorker:
    """Add a worker to `run` and follow it to its end; called again after its driver died, follow the same worker.

    Args:
        repo: Folder of the line, in a clone that has the commit of the run.
        run: Run id or a unique beginning of one, in the store of `site`.
        site: Where the worker runs.
        environ: For secret references.
        observer: Gets what happens to the worker, in words.

    Raises:
        UsageError: The run has ended, has no parameter server, or this clone lacks its commit.
        ConfigError: This is another version of gangline, or the model has other tensors here.
        CapacityError: The run does not train yet, or there is no room for the worker.
        IntegrityError: Seal, key, code or data differ from those of the run, or it is of a fork.
        CancelledError: The worker was stopped, or its run.
        GanglineError: The error that the worker's gang ended with.
    """
    workspace = open_run_workspace(repo, site=site, environ=environ, observer=observer)
    store, sealer = workspace.store, workspace.sealer()
    record = sealer.check(runs.find_run(store, run))
    require_owned(store, record, site=site, sealer=sealer, repo=repo)
    require_joinable(record, key_id=signing_key(site, environ).key_id, version=software_versions()["gangline"])
    target, _ = parse_target(site.launch.target)
    site = with_target(site, target)
    launcher = open_launcher(
        repo, site=site, environ=environ, store=store, rights=rights_of(record), note=observer.note
    )  # fmt: skip
    ctx = _JoinedContext(
        repo=repo, site=site, environ=environ, store=store, records=RecordStore.of(store, record, sealer),
        record=replace(record, run=replace(record.run, target=target)), line=line_of(store, record),
        driver=Driver(holder=lease.this_process()), launcher=launcher, observer=observer,
    )  # fmt: skip
    commit = ctx.record.commit
    if commit.patch is not None:
        raise UsageError(f"{ctx.record.run.id} is of a tree that was not committed: no other checkout has it")
    if not ctx.repository.has(commit.sha) or ctx.repository.tree_if_any(commit.sha) != commit.tree:
        raise UsageError(
            f"wanted commit {commit.sha[:8]} of {ctx.record.run.id} and the folder of its line, found none in"
            f" {ctx.repo}; git fetch, or run this in the folder that has line.toml"
        )
    ctx.record = _built_here(ctx, record)
    seat = _take_seat(store, record, launcher, ctx)
    with lease.renewed_lease(store, seat.prefix, seat.lease, on_problem=observer.note):
        return _follow(ctx, seat, record)


def require_joinable(record: Record, *, key_id: str, version: str) -> None:
    """Require that a worker may join the run of `record`; pure.

    Args:
        record: Of the run, with a seal that this site trusts.
        key_id: Key with which this site signs.
        version: Of gangline here.

    Raises:
        UsageError: It has no parameter server, or its training has ended.
        CapacityError: It does not train yet.
        ConfigError: Another version of gangline made it.
        IntegrityError: It is of a fork, or workers of this site would sign with another key.
    """
    run, seal = record.run.id, record.seal
    if not record.inputs.values.get("train.parameter_server.workers"):
        strategy = record.inputs.values.get("train.strategy")
        raise UsageError(
            f'{run}: wanted a run with strategy = "parameter_server", found {strategy!r}: it takes no worker'
        )
    if record.run.state == "ended" or stage(record, "train").state in FINAL:
        raise UsageError(
            f"{run}: wanted a run that trains, found one whose training has ended; there is nothing to join"
        )
    if record.commit.trust == "fork":
        raise IntegrityError(f"{run} is of a fork: its code runs where a maintainer approved it, and nowhere else")
    if record.plan is None or record.gang is None:
        raise CapacityError(
            f"{run} does not train yet; join it once gangline show {run} says that its stage train runs"
        )
    if (made_by := record.inputs.versions.get("gangline")) != version:
        raise ConfigError(
            f"{run}: wanted gangline {made_by}, which made this run, found {version}; install that version"
        )
    if seal is None or seal.key_id != key_id:
        found = seal.key_id if seal else "none"
        raise IntegrityError(
            f"{run}: wanted the key of its driver, {found}, which signs what workers read and write, found {key_id};"
            " let sign.key of this site name the same key"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Seat:
    """The number that this driver has, and the lease on it."""

    worker: JoinedWorker
    prefix: str
    lease: lease.Lease
    is_new: bool


class _JoinedContext(RunContext):
    """Context of a worker that joins: the record is its run's, and gets events of the training alone."""

    def change(self, change: Change) -> Record:
        del change
        if events := tuple(self.pending):

            def with_events(record: Record) -> Record:
                for event in events:
                    record = states.add_event(
                        record, now=event.time, stage=event.stage, kind=event.kind, text=event.text
                    )
                return record

            with suppress(StorageError):  # they are written with the next ones
                self.records.change(with_events)
                self.pending = self.pending[len(events) :]
        return self.record

    def record_event(self, stage: str, kind: str, text: str, *, notify: bool = True) -> None:
        if stage == "train":
            super().record_event(stage, kind, text, notify=False)
        if notify:
            self.observer.note(text)

    def cancel_requested(self) -> str | None:
        """Reason to stop: that of the run's cancellation, or its failure, after which no server merges."""
        current = self.records.read()
        if current is None or current.run.cancel_requested:
            return None if current is None else current.run.cancel_requested
        return f"its run has failed: {current.run.reason}" if current.run.verdict == "failed" else None

    def find_cached_stages(self, name: str, key: str) -> Iterator[Record]:
        """None: what is built here is compared with the run itself."""
        del name, key
        return iter(())

    def tell(self, text: str) -> None:
        """Add an event to the record now."""
        self.record_event("train", WORKER, text)
        self.change(lambda record: record)


class _JoinedView(ObserverRelay):
    """Says from time to time what a worker has pushed: its steps are not those of the run."""

    def __init__(self, inner: Observer) -> None:
        super().__init__(inner)
        self._pushed, self._next = 0, 0.0

    def progress(self, stage: str, event: GangEvent) -> None:
        del stage
        if event.kind in ("restart", "note", "waiting") and event.text:
            self.note(event.text)
        if event.data.get("event") == "block_pushed":
            self._pushed += 1
            if time.monotonic() >= self._next:
                self._next = time.monotonic() + SECONDS_BETWEEN_NOTES
                self.note(f"block {event.data.get('block')} is pushed, {self._pushed} so far")


def _built_here(ctx: RunContext, record: Record) -> Record:
    """The record as gangs of this site read it: with its own environment, and servers of its own.

    Raises:
        IntegrityError: The same commit gives other code or data here.
        CapacityError: There is no room for one worker.
    """
    checked_sandbox(ctx)
    made = build(ctx)
    built = made.change(ctx.record)
    require_same_inputs(record, built)
    outputs = {"build": made.outputs, "plan": _nodes_here(ctx)}
    stages = {name: replace(stage(built, name), outputs=output) for name, output in outputs.items()}
    return replace(built, stages=built.stages | stages)


def require_same_inputs(record: Record, built: Record) -> None:
    """Raise IntegrityError if the commit of `record` gives other code or data in `built`; pure."""
    wanted, found = record.inputs, built.inputs
    for what, theirs, ours in (("code layer", wanted.code, found.code), ("data", wanted.data, found.data)):
        if theirs != ours:
            raise IntegrityError(
                f"{record.run.id}: wanted its {what} {theirs[:12]}, found {ours[:12]} here; files that git does not"
                " keep must be the same in all places"
            )


def _nodes_here(ctx: RunContext) -> dict[str, object]:
    """What the plan stage would say of the servers of this site."""
    plan, launcher = ctx.plan, ctx.record.run.launcher
    if launcher.is_here:
        return {"procs_per_node": plan.world_size}
    inventory = cluster_inventory(ctx.site, ctx.environ)
    if plan.device == "cpu":
        return {"procs_per_node": ctx.output("plan", "procs_per_node")}
    each = inventory.gpus.count if inventory.gpus else 0
    procs = next((n for n in range(min(each, plan.world_size), 0, -1) if plan.world_size % n == 0), 0)
    if not procs or plan.world_size // procs > inventory.num_nodes:
        raise CapacityError(
            f"{plan.run}: wanted {plan.world_size} GPUs for one worker, found {inventory.num_nodes} servers with {each}"
            f" each at {ctx.site.launch.target}"
        )
    return {"procs_per_node": procs, **server_labels(inventory)}


def _take_seat(store: ObjectStore, record: Record, launcher: Launcher, ctx: RunContext) -> _Seat:
    """The worker of this site whose driver died, else a new one with the lowest free number."""
    for number in free_numbers(record):
        prefix, worker = joined_prefix(record, number), read_joined(store, record, number)
        is_ours = worker is not None and worker.left is None and _has_gang(launcher, record, number)
        if worker is not None and not is_ours:
            continue
        joined = worker or JoinedWorker(
            worker=number, host=socket.gethostname(), target=ctx.record.run.target, joined=now()
        )
        with suppress(lease.HeldError):
            held = lease.acquire_lease(store, prefix, holder=ctx.driver.holder, at_least=0)
            if worker is not None or put_joined(store, record, joined):
                return _Seat(worker=joined, prefix=prefix, lease=held, is_new=worker is None)
            lease.release_lease(store, prefix, held)
    raise CapacityError(f"{record.run.id}: every number of a worker is taken; it takes no further one")


def _has_gang(launcher: Launcher, record: Record, number: int) -> bool:
    return launcher.status(worker_gang(record.run.id, number)).state != "absent"


def _follow(ctx: _JoinedContext, seat: _Seat, record: Record) -> JoinedWorker:
    """Start or adopt the gang of a seat, follow it to its end, and write how it ended."""
    worker, plan = seat.worker, worker_plan(ctx.plan, seat.worker.worker)
    name = f"worker {worker.worker}"
    where = f"{counted(plan.world_size, 'rank')} at {worker.target}, driven from {worker.host}"
    ctx.observer = _JoinedView(ctx.observer)
    said = f"{name} has joined: {where}" if seat.is_new else f"{name} has a driver again: {where}"

    def started(gang: Gang, restarts: int) -> None:
        del gang
        if not restarts:
            ctx.tell(said)

    try:
        finished = run_gang(ctx, "train", plan, chain=worker.worker, on_started=started)
    except Interrupted as error:
        _leave(ctx, worker, f"{name} has left: {error}")
        raise CancelledError(f"{name} was stopped and has left {record.run.id}; what it had pushed counts") from None
    except GangUnreachable:
        raise
    except (CancelledError, CapacityError, ConfigError, IntegrityError) as error:
        _leave(ctx, worker, f"{name} has left: {error}")
        raise
    return _ended(ctx, worker, finished)


def _ended(ctx: _JoinedContext, worker: JoinedWorker, finished: FinishedGang) -> JoinedWorker:
    error: GanglineError | None = finished.error
    name = f"worker {worker.worker}, which had joined,"
    _leave(ctx, worker, f"{name} has ended: {error or 'every block is trained'}")
    if error is not None:
        raise error
    return worker


def _leave(ctx: _JoinedContext, worker: JoinedWorker, text: str) -> None:
    ctx.tell(text)
    put_left(ctx.store, ctx.record, worker)
