"""Launcher of this machine. All state is in files, so any driver can continue."""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gangline.errors import GanglineError, StillRunning, UsageError
from gangline.launch.local.folder import GangFolder, LaunchedGang, find_uncollected, write_file
from gangline.launch.local.follower import GONE_SECONDS, POLL_SECONDS, LocalFollower, LogTail
from gangline.launch.local.gang_sandbox import require_sandbox
from gangline.launch.local.keeper_start import materialise, require_gpus, start_keepers, write_secrets
from gangline.launch.local.processes import kill_gang, living_keepers, record_dead_keepers, send
from gangline.launch.local.scrape_targets import free_ports, publish_targets, remove_targets
from gangline.launch.protocol import Gang, GangEvent, GangGone, GangStatus, Life, LogLine, SweepResult, require_equal
from gangline.launch.sandbox import Sandbox
from gangline.sanitize import conceal
from gangline.spec.gang.podset import PodSet
from gangline.spec.gang.status import GangEnd, GangState, KeeperStatus
from gangline.storage.folder.safe_paths import delete_tree
from gangline.storage.objects.protocol import ObjectStore

AFTER_GRACE_SECONDS = 90.0
"""Time of a keeper beyond the grace of its ranks, mostly for the last upload."""
_ASK_SECONDS = 1.0
_START_AGAIN = "check out the commit again and start it with gangline run --again"


class LocalLauncher:
    """Implements `launch.protocol.Launcher` with processes."""

    def __init__(
        self, root: Path, *, store: ObjectStore, secrets: Callable[[str], bytes], targets: Path | None = None,
        sandbox: Sandbox | None = None,
    ) -> None:  # fmt: skip
        """
        Args:
            root: Folder with one folder per gang.
            store: From which plan and code are read.
            secrets: Returns the value of a secret by its name in a PodSet.
            targets: Folder of the target files for Prometheus; None: `targets` next to `root`.
            sandbox: Sandbox of new gangs; None: they run as this user.
        """
        self._root = root.resolve()
        self._store = store
        self._secrets = secrets
        self._targets = targets or self._root.parent / "targets"
        self._sandbox = sandbox
        self._submitted: list[str] = []

    def submit(self, podset: PodSet) -> Gang:
        folder = self._folder(podset.name)
        if not self._root.parent.is_dir():
            self.require_folders()
            raise GangGone(f"gang {podset.name} cannot start: {self._root.parent} was deleted; {_START_AGAIN}")
        with folder.lock():
            adopted = folder.exists
            if adopted:
                require_equal(folder.podset(), podset)
            launched = folder.launched() or self._start(folder, podset)
            self._submitted.append(podset.name)
        return Gang(name=podset.name, uid=launched.uid, podset=podset.digest, adopted=adopted)

    def _start(self, folder: GangFolder, podset: PodSet) -> LaunchedGang:
        require_gpus(podset)
        sandbox = self._sandbox
        if sandbox is not None:
            require_sandbox(sandbox, podset)
            sandbox = None if sandbox.is_unconfined else sandbox
        if folder.inside != folder.home:
            kill_gang(folder)  # what a submitter that died has started: nothing is put in its folder meanwhile
        entrance = materialise(folder, podset, store=self._store, secrets=self._secrets, sandbox=sandbox)
        write_file(folder.home / "podset.json", podset.to_json(), mode=0o644)
        return start_keepers(folder, podset, metrics_port=self._publish_targets(podset), entrance=entrance)

    def require_folders(self) -> None:
        until = time.monotonic() + GONE_SECONDS
        while gone := [name for name in self._submitted if not self._folder(name).exists]:
            if time.monotonic() > until:
                raise [self._end_deleted(name) for name in gone][-1]
            time.sleep(POLL_SECONDS)

    def _end_deleted(self, name: str) -> GangGone:
        """Kill a gang whose folder was deleted; returns the error to raise."""
        folder = self._folder(name)
        kill_gang(folder)
        remove_targets(self._targets, name)
        return GangGone(f"gang {name} has ended: its folder {folder.home} was deleted; {_START_AGAIN}")

    def status(self, name: str) -> GangStatus:
        folder = self._folder(name)
        try:
            return self._status(folder) if folder.exists else GangStatus(state="absent")
        except FileNotFoundError:  # deleted since the look
            return GangStatus(state="absent")

    def _status(self, folder: GangFolder) -> GangStatus:
        """Raises `FileNotFoundError` if the folder is deleted meanwhile."""
        podset = folder.podset()
        record_dead_keepers(folder, podset.num_nodes)
        return state_of_files(folder, podset)

    def follow(self, name: str) -> Iterator[GangEvent]:
        folder = self._existing(name)
        podset = folder.podset()
        follower = LocalFollower(folder, world_size=podset.world_size, num_nodes=podset.num_nodes)
        yield from follower.events(lambda: self.status(name))
        if not folder.exists:
            raise self._end_deleted(name)
        end = self.collect(name)
        yield GangEvent(kind="end", text=end.reason, end=end)

    def logs(
        self, name: str, *, ranks: Sequence[int] | None = (0,), since_seconds: float | None = None, follow: bool = False
    ) -> Iterator[LogLine]:
        """Log lines of ranks. They have no times: `since_seconds` leaves out logs without newer lines.

        Secrets of the gang are concealed: here while ranks write, in the files once it has ended.
        """
        folder = self._existing(name)
        secrets = folder.secret_values()
        wanted = sorted({*range(folder.podset().world_size), *folder.ranks()}) if ranks is None else ranks
        logs = {rank: folder.log(rank) for rank in wanted}
        tails = {
            rank: LogTail(log, below=folder.inside) for rank, log in logs.items() if _is_recent(log, since_seconds)
        }  # fmt: skip
        while True:
            ended = self.status(name).state == "ended"
            for rank, tail in tails.items():
                yield from (LogLine(rank=rank, text=conceal(line, secrets)) for line in tail.lines(ended=ended))
            if ended or not follow:
                return
            time.sleep(POLL_SECONDS)

    def cancel(self, name: str, *, reason: str, save: bool = True) -> None:
        folder = self._folder(name)
        if not folder.exists or self.status(name).state == "ended":
            return
        podset = folder.podset()
        with folder.lock():
            folder.cancel(reason=reason, save=save)
            if folder.launched() is None:  # its submitter died before it started any keeper
                folder.write("launch.json", LaunchedGang(uid="", keepers=()))
        deadline, asked = time.monotonic() + podset.grace_seconds + AFTER_GRACE_SECONDS, 0.0
        while (living := living_keepers(folder)) and time.monotonic() < deadline:
            if (
                time.monotonic() > asked + _ASK_SECONDS
            ):  # repeated: process 1 of a sandbox ignores signals without a handler
                asked = time.monotonic()
                for keeper in living.values():
                    send(keeper, signal.SIGTERM)
            time.sleep(POLL_SECONDS)
        kill_gang(folder)
        record_dead_keepers(folder, podset.num_nodes)
        remove_targets(self._targets, name)

    def cancel_modules(self, run: str) -> None:
        """No effect: on this machine they are children of their driver, which takes them along."""

    def renew(self, name: str) -> None:
        folder = self._existing(name)
        podset = folder.podset()
        values = {secret: self._secrets(secret) for secret in podset.secrets}
        with folder.lock():
            if self.status(name).state != "ended":
                write_secrets(folder, values)

    def collect(self, name: str) -> GangEnd:
        folder = self._existing(name)
        state = self.status(name).state
        ends = [end for node in range(folder.podset().num_nodes) if (end := folder.end(node)) is not None]
        if state != "ended":
            raise StillRunning(f"gang {name} is {state}; follow it, or cancel it")
        with folder.lock():
            for path in (folder.secrets, folder.tmp, folder.own_home):
                delete_tree(path)
        remove_targets(self._targets, name)
        return _merge(ends)

    def sweep(self, *, now: datetime, life: Callable[[str], Life], with_outputs: bool = False) -> list[SweepResult]:
        """Sweep by the protocol; gangs of an unknown run are deleted only after their own latest end."""
        swept = []
        for path in sorted(self._root.glob("*/podset.json")):
            folder = GangFolder(path.parent)
            try:
                podset = folder.podset()
            except GanglineError:
                continue
            known = life(podset.run)
            over = known in ("ended", "orphan") or (known == "unknown" and now > _hard_end(path, podset))
            if over:
                self.cancel(podset.name, reason=f"swept: its run is {known}", save=False)
                remove_targets(self._targets, podset.name)
            left = find_uncollected(folder)
            deleted = over and (with_outputs or not left.files)
            if deleted:
                self._submitted = [each for each in self._submitted if each != folder.home.name]
                delete_tree(folder.home)
            swept.append(
                SweepResult(
                    name=podset.name, run=podset.run, life=known, deleted=deleted, uncollected_files=left.files,
                    uncollected_bytes=left.size_bytes,
                )
            )  # fmt: skip
        return swept

    def _publish_targets(self, podset: PodSet) -> int | None:
        """Write the target file of the gang; returns the metrics port of rank 0."""
        if podset.metrics_port_base is None:
            return None
        ports = free_ports(self._targets, podset.metrics_port_base, podset.world_size)
        publish_targets(self._targets, podset.name, ports, gang=podset.name)
        return ports.start

    def _folder(self, name: str) -> GangFolder:
        if not name or name.startswith(".") or "/" in name:
            raise UsageError(f"gang name: wanted lower-case letters, digits and hyphens, found {name!r}")
        return GangFolder(self._root / name)

    def _existing(self, name: str) -> GangFolder:
        folder = self._folder(name)
        if not folder.exists:
            self.require_folders()
            raise UsageError(f"there is no gang {name!r} in {self._root}; `gangline list` shows the runs")
        return folder


def state_of_files(folder: GangFolder, podset: PodSet) -> GangStatus:
    """Status of a gang by what its keepers wrote, whether they live or not."""
    statuses = [status for node in range(podset.num_nodes) if (status := folder.keeper(node)) is not None]
    joined = sum(len(status.joined) for status in statuses)
    return GangStatus(
        state=_state(folder, podset, statuses, joined),
        joined=joined,
        ranks=_world_size(podset, statuses),
        generation=max((status.generation for status in statuses), default=0),
        restarts=max((status.restarts for status in statuses), default=0),
    )


def _state(folder: GangFolder, podset: PodSet, statuses: Sequence[KeeperStatus], joined: int) -> GangState:
    if all(folder.end(node) is not None for node in range(podset.num_nodes)):
        return "ended"
    if folder.cancelled() is not None or any(status.state in ("stopping", "ended") for status in statuses):
        return "stopping"
    return "running" if joined == _world_size(podset, statuses) else "starting"


def _world_size(podset: PodSet, statuses: Sequence[KeeperStatus]) -> int:
    """Ranks of the latest generation, which an elastic gang changes."""
    latest = max(statuses, key=lambda status: status.generation, default=None)
    return (latest.world_size if latest else 0) or podset.world_size


def _merge(ends: Sequence[GangEnd]) -> GangEnd:
    """The end of the node that failed first, with the sum of all ledgers, and the steps of the gang as node 0 knows."""
    failed = sorted((end for end in ends if end.exit_code), key=lambda end: end.time)
    speaker = (failed or list(ends))[0]
    ledger: dict[str, float] = {}
    for end in ends:
        for cause, seconds in end.ledger.items():
            ledger[cause] = ledger.get(cause, 0.0) + seconds
    values = {name: getattr(speaker, name) for name in GangEnd.__dataclass_fields__}
    steps = {name: getattr(ends[0], name) for name in ("step", "saved_step") if getattr(ends[0], name) is not None}
    seconds = sum(end.allocated_seconds for end in ends)
    return GangEnd(**values | steps | {"ledger": ledger, "allocated_seconds": seconds})


def _hard_end(created: Path, podset: PodSet) -> datetime:
    if podset.deadline_seconds is None:
        return datetime.max.replace(tzinfo=UTC)
    seconds = podset.deadline_seconds + podset.grace_seconds
    return datetime.fromtimestamp(created.stat().st_mtime, UTC) + timedelta(seconds=seconds)


def _is_recent(log: Path, since_seconds: float | None) -> bool:
    return since_seconds is None or (log.exists() and time.time() - log.stat().st_mtime <= since_seconds)
