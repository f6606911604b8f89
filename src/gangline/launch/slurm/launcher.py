"""Launcher of a Slurm cluster: a gang of Slurm is a local gang on a shared folder.

All state is in files, as on this machine. New are who starts the keepers, `srun` on each server, and who says whether
they live, `squeue`. A number of a job is the uid of its gang.

A gang has one job, however many drivers start it and wherever they die. A driver submits a held job, then looks for
jobs of that name: the one with the lowest number is the gang's, all others are cancelled before they ever ran. Its
number is written down before it is released, so that a driver that looks when the job is over finds the number instead.
"""

import hashlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from gangline.errors import SIGTERM_CODE, GanglineError, IntegrityError
from gangline.fabric.topology.inventory import Fabric
from gangline.launch.local.folder import GangFolder, LaunchedGang, write_file
from gangline.launch.local.gang_sandbox import GangSandbox, require_sandbox
from gangline.launch.local.keeper_start import REJOIN_SECONDS, keeper_command, keeper_environ, materialise
from gangline.launch.local.launcher import AFTER_GRACE_SECONDS, LocalLauncher, state_of_files
from gangline.launch.protocol import GangEvent, GangGone, GangStatus
from gangline.launch.sandbox import Sandbox
from gangline.launch.sandbox.environment import passed_on
from gangline.launch.slurm.batch_script import SCRIPT, job_options, life_script
from gangline.launch.slurm.commands import SlurmAway, SlurmCommands, SlurmJob
from gangline.launch.slurm.lives import (
    DEADLINE,
    DEVICES,
    MASTER,
    START,
    KeeperCommand,
    SlurmLife,
    SlurmStart,
    earlier_ends,
    read_life,
)
from gangline.launch.slurm.put_back import queue_words, read_put_back
from gangline.launch.slurm.states import (
    end_of_node,
    is_final,
    state_of,
    stopped_retry,
    waiting_sentence,
    with_earlier_lives,
)
from gangline.spec.config.site_tables import SlurmTable
from gangline.spec.gang.podset import PodSet
from gangline.spec.gang.status import GangEnd
from gangline.storage.objects.protocol import ObjectStore

ASK_SECONDS = 5.0
"""Pause between two looks at a job, which all users of a cluster pay for."""
_END_SECONDS = 0.5
"""The same once its keepers have ended."""
_PAUSE_SECONDS = 0.5
_WITHOUT_SAVE_SECONDS = 10.0
"""Time for keepers to end their ranks when nothing is saved."""


@dataclass(slots=True)
class _Seen:
    """The last look at a job."""

    job: SlurmJob | None
    at: float
    """Monotonic time of the answer."""
    asked: float
    waiting: str = ""


class SlurmLauncher(LocalLauncher):
    """Implements `launch.protocol.Launcher` with jobs of Slurm."""

    def __init__(
        self, root: Path, *, store: ObjectStore, secrets: Callable[[str], bytes], table: SlurmTable,
        sandbox: Sandbox | None = None, fabric: Fabric | None = None, ask_seconds: float = ASK_SECONDS,
    ) -> None:  # fmt: skip
        """
        Args:
            root: Folder with one folder per gang, which this machine and all servers see.
            store: From which plan and code are read.
            secrets: Returns the value of a secret by its name in a PodSet.
            table: How jobs are submitted.
            sandbox: Sandbox of new gangs on the servers; None: they run as this user.
            fabric: Network whose groups name the servers, for the order of node ranks; None: Slurm's order.
            ask_seconds: Time between two looks at a job.
        """
        super().__init__(root, store=store, secrets=secrets, sandbox=sandbox)
        self._slurm = SlurmCommands(table.via)
        self._table, self._fabric, self._ask_seconds = table, fabric, ask_seconds
        self._seen: dict[str, _Seen] = {}

    # -- start

    def _start(self, folder: GangFolder, podset: PodSet) -> LaunchedGang:
        comment = self._comment(podset)
        if not find_jobs(self._slurm, podset.name, comment):  # the job of a submitter that died has its files
            self._write_files(folder, podset)
        options = (*job_options(self._table, name=podset.name, num_nodes=podset.num_nodes), f"--comment={comment}")
        places = (f"--chdir={folder.home}", "--output=logs/job.log", "--hold")
        number = start_job(
            self._slurm,
            podset.name,
            comment,
            submit=lambda: self._slurm.submit((*options, *places), folder.home / SCRIPT),
            known=lambda: launched.uid if (launched := folder.launched()) else None,
            note=lambda number: folder.write("launch.json", LaunchedGang(uid=number, keepers=())),
        )
        return LaunchedGang(uid=number, keepers=())

    def _comment(self, podset: PodSet) -> str:
        """It names folder and PodSet: a number or a name that was used before is no sign of this gang."""
        folder = str(self._root / podset.name).encode()
        read = PodSet.from_json(podset.to_json())  # as whoever reads it in the folder: JSON makes 20.0 of 20
        return f"gangline {read.digest[:16]} {hashlib.sha256(folder).hexdigest()[:16]}"

    def _write_files(self, folder: GangFolder, podset: PodSet) -> None:
        sandbox = self._sandbox
        if sandbox is not None:
            if not sandbox.is_own:
                raise IntegrityError(
                    "wanted a commit of this repository, found one of a fork: servers of Slurm give it no store and no"
                    " network of its own; --target local runs it, and a cluster of pods does"
                )
            require_sandbox(sandbox, podset)
            sandbox = None if sandbox.is_unconfined else sandbox
        entrance = materialise(folder, podset, store=self._store, secrets=self._secrets, sandbox=sandbox)
        commands = tuple(self._command(folder, podset, node, entrance) for node in range(podset.num_nodes))
        start = SlurmStart(commands=commands, groups=self._fabric.groups if self._fabric else ())
        write_file(folder.home / START, start.to_json(), mode=0o600)
        script = life_script(self._table, folder=folder.home, python=sys.executable)
        write_file(folder.home / SCRIPT, script.encode(), mode=0o755)
        write_file(folder.home / "podset.json", podset.to_json(), mode=0o644)

    def _command(self, folder: GangFolder, podset: PodSet, node: int, entrance: GangSandbox | None) -> KeeperCommand:
        passed = entrance.environ if entrance else passed_on()
        environ = keeper_environ(folder, podset, node, environ=passed, metrics_port=podset.metrics_port_base)
        environ |= {"MASTER_ADDR": MASTER, "CUDA_VISIBLE_DEVICES": DEVICES}
        environ |= {"GANGLINE_DEADLINE_SECONDS": DEADLINE} if podset.deadline_seconds is not None else {}
        environ |= {"GANGLINE_REJOIN_SECONDS": str(2 * REJOIN_SECONDS)} if podset.num_nodes > 1 else {}
        return KeeperCommand.of(keeper_command(folder, podset, environ, entrance))

    # -- what is known of it

    def _status(self, folder: GangFolder) -> GangStatus:
        name = folder.home.name
        podset, launched = folder.podset(), folder.launched()
        if launched is None:
            return GangStatus(state="starting", ranks=podset.world_size)
        ends = [folder.end(node) for node in range(podset.num_nodes)]
        seen = self._look(name, launched.uid, soon=all(ends))
        stale = 0.0 if seen is None or seen.at == seen.asked else max(0.001, time.monotonic() - seen.at)
        files, life = state_of_files(folder, podset), read_life(folder)
        if seen is None or stale:  # Slurm is away, which the files of its keepers do not mind
            state = "ended" if is_final(ends) else files.state if files.state != "ended" else "stopping"
            stale = stale or max(0.001, self._ask_seconds)
        else:
            state = state_of(seen.job, files.state)
            if state == "waiting" and is_final(ends):
                # slurmctld was killed and has forgotten that the job ran: it would run again, or be held for ever
                with suppress(GanglineError):
                    self._slurm.cancel(launched.uid)
                state = "ended"
            if state == "ended":
                self._record_ends(folder, podset, seen.job, life)
        if state not in ("ended", "waiting") and folder.cancelled() is not None:
            state = "stopping"
        lives = life.life - 1 if life else 0
        placed = life.placed if life and state != "waiting" else ()
        return replace(
            files,
            state=state,
            stale_seconds=stale,
            joined=0 if state == "waiting" else files.joined,
            restarts=files.restarts + lives,
            waiting=seen.waiting if seen and state == "waiting" else "",
            servers=tuple(server.name for server in placed),
            placed=placed if any(server.group for server in placed) else (),
            placed_by="Slurm",
            tile=podset.tile,
        )

    def _look(self, name: str, number: str, *, soon: bool) -> _Seen | None:
        """The job, asked again if the last answer is old; None: Slurm has not answered yet."""
        seen, now = self._seen.get(name), time.monotonic()
        pause = min(self._ask_seconds, _END_SECONDS) if soon else self._ask_seconds
        if seen is not None and (now - seen.asked < pause or (seen.job is not None and seen.job.is_over)):
            return seen
        try:
            job = self._slurm.job(number) if number else None
            waiting = ""
            if job is not None and job.state == "PENDING":
                waiting = waiting_sentence(job, before=self._slurm.count_before(job))
        except SlurmAway:
            if seen is not None:
                seen.asked = now
            return seen
        self._seen[name] = _Seen(job=job, at=now, asked=now, waiting=waiting)
        return self._seen[name]

    def _record_ends(self, folder: GangFolder, podset: PodSet, job: SlurmJob | None, life: SlurmLife | None) -> None:
        """Write the end of every node that left none; its job is over."""
        for node in range(podset.num_nodes):
            if folder.end(node) is None:
                with folder.keepers_lock():
                    if folder.end(node) is None:
                        cancelled = folder.cancelled()
                        end = end_of_node(job, node, cancelled=cancelled, has_started=life is not None)
                        folder.write_inside(f"exit-{node}.json", end)

    def follow(self, name: str) -> Iterator[GangEvent]:
        folder = self._existing(name)
        life = read_life(folder)
        waiting, lives, hastened = "", life.life if life else 1, 0
        for event in super().follow(name):
            yield event
            if event.status is None:
                continue
            if event.status.waiting and event.status.waiting != waiting:
                yield GangEvent(kind="waiting", text=event.status.waiting)
            waiting = event.status.waiting
            life = read_life(folder)
            if event.status.state == "waiting" and life is not None and life.life > hastened and self._hasten(name):
                hastened = life.life
            if life is not None and life.life > lives:
                lives = life.life
                text = f"job {life.job} again, life {lives} of {self._table.lives}: {life.said}"
                data = {"generation": life.generation, "reason": life.said}
                yield GangEvent(kind="restart", text=text, data=data)

    def _hasten(self, name: str) -> bool:
        """Spare a job that was put back into the queue its two minutes; whatever hinders that, they pass."""
        seen = self._seen.get(name)
        if seen is None or seen.job is None or seen.job.reason != "BeginTime":
            return False
        with suppress(GanglineError):
            self._slurm.start_now(seen.job.number)
            return True
        return False

    def collect(self, name: str) -> GangEnd:
        folder, end = self._folder(name), stopped_retry(super().collect(name))
        if end.exit_code == SIGTERM_CODE and folder.cancelled() is None and (seen := self._seen.get(name)) is not None:
            end = replace(end, reason=f"{end.reason}; {queue_words(read_put_back(folder), seen.job)}")
        return with_earlier_lives(end, earlier_ends(folder))

    # -- end

    def cancel(self, name: str, *, reason: str, save: bool = True) -> None:
        folder = self._folder(name)
        if not folder.exists or self.status(name).state == "ended":
            return
        podset = folder.podset()
        with folder.lock():
            folder.cancel(reason=reason, save=save)
            if folder.launched() is None:  # its submitter died
                for job in find_jobs(self._slurm, name, self._comment(podset)):
                    self._slurm.cancel(job.number)
                folder.write("launch.json", LaunchedGang(uid="", keepers=()))
        launched = folder.launched()
        if launched is not None and launched.uid:
            grace = podset.grace_seconds + AFTER_GRACE_SECONDS if save else _WITHOUT_SAVE_SECONDS
            self._end_job(launched.uid, time.monotonic() + grace)
        self._seen.pop(name, None)
        self.status(name)

    def _end_job(self, number: str, deadline: float) -> None:
        """SIGTERM lets ranks save; a plain scancel, once they had their time, kills them after KillWait."""
        while (job := self._slurm.job(number)) is not None and not job.is_over:
            if job.state == "PENDING" or time.monotonic() > deadline:
                self._slurm.cancel(number)
            else:
                self._slurm.ask_to_stop(number)
            time.sleep(_PAUSE_SECONDS)

    def _end_deleted(self, name: str) -> GangGone:
        """End the jobs of a gang whose folder was deleted; returns the error to raise."""
        seen = self._seen.pop(name, None)
        if seen is not None and seen.job is not None:
            self._slurm.cancel(seen.job.number)
        return GangGone(f"gang {name} has ended: its folder {self._root / name} was deleted; start it again")

    def _publish_targets(self, podset: PodSet) -> int | None:
        return podset.metrics_port_base


def find_jobs(queue: SlurmCommands, name: str, comment: str) -> list[SlurmJob]:
    """Jobs of the gang with this comment, which names its folder and PodSet, in the order of their numbers."""
    return [job for job in queue.named(name) if job.comment == comment]


def start_job(
    queue: SlurmCommands, name: str, comment: str, *, submit: Callable[[], str], known: Callable[[], str | None],
    note: Callable[[str], None],
) -> str:  # fmt: skip
    """Number of the job of the gang, which is released; a lost answer or a dead driver leaves no second one.

    Args:
        queue: Slurm.
        name: Of the gang and its job.
        comment: As in `find_jobs`.
        submit: Submits a held job of that name and comment; returns its number.
        known: Reads the number that a driver has written down; None: none has.
        note: Writes the number of the job down, durably.

    Raises:
        SlurmAway: Slurm does not answer; the next call continues.
    """
    jobs = find_jobs(queue, name, comment)
    if not jobs and (number := known()) is not None:
        return number
    if not jobs:
        try:
            own = submit()
        except SlurmAway:  # the job may exist, held
            jobs = find_jobs(queue, name, comment)
            if not jobs:
                raise
        else:
            jobs = find_jobs(queue, name, comment) or [SlurmJob(number=own, state="PENDING", comment=comment)]
    number = known() or jobs[0].number
    for other in jobs:
        if other.number != number:
            queue.cancel(other.number)
    note(number)
    if number in {job.number for job in jobs if job.state == "PENDING"}:
        queue.release(number)
    return number
