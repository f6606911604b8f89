"""Generation of a gang on one node: starts its ranks, watches them and ends them together.

The keeper starts a command, which may be a shell or a launcher of processes; it is their *leader*. A process below it
joins with its first heartbeat, and is the rank then: requests to stop and for stacks go to those that joined.
"""

import os
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gangline.keeper.ipc.environment import WatchdogLimits
from gangline.keeper.ipc.heartbeat import Beat, HeartbeatReader
from gangline.keeper.ipc.joined import joined_path, read_joined
from gangline.keeper.ipc.rank_report import RankEvents, RankReport
from gangline.keeper.ranks.generation_host import GenerationHost
from gangline.keeper.ranks.generation_result import CULPRIT_SECONDS, GenerationResult
from gangline.keeper.ranks.hang_diagnosis import collect_stacks, describe_lagging_rank
from gangline.keeper.ranks.process_reports import ProcessReports
from gangline.keeper.ranks.rank_exit import RankExit, culprit, with_report
from gangline.keeper.ranks.rank_processes import (
    RankStart,
    Starter,
    has_members,
    kill_orphans,
    leftover_commands,
    reap,
    send,
    signal_groups,
)
from gangline.keeper.ranks.stop_request import StopRequest
from gangline.keeper.ranks.watchdog import Hang, Watchdog
from gangline.procfs import descendants, is_alive, pids, start_time, state
from gangline.spec.gang.status import GangState


class RankProcesses:
    """The leader of a rank and the processes that joined, by their pids in this pid namespace."""

    def __init__(self, leader: int, heartbeat: Path) -> None:
        self._leader = leader
        self._heartbeat = heartbeat
        self._size = 0
        self._joined: dict[int, int] = {}
        """Start time by pid."""

    def living(self) -> list[int]:
        """Those that joined and still run, the first one first; the leader if there is none."""
        self._update()
        return [pid for pid, started in self._joined.items() if is_alive(pid, started)] or [self._leader]

    def _update(self) -> None:
        """Find the processes again if another one joined."""
        try:
            size = joined_path(self._heartbeat).stat().st_size
        except FileNotFoundError:
            return
        if size != self._size:
            self._size = size
            self._joined = _find_processes(read_joined(self._heartbeat))


def _find_processes(joined: list[tuple[int, int]]) -> dict[int, int]:
    """Start time by pid of those that exist; one in a pid namespace of its own has another pid here than it wrote."""
    here = {(names[-1], start_time(pid)): pid for pid in descendants(os.getpid()) if (names := pids(pid))}
    return {here[each]: each[1] for each in joined if each in here}


WATCH_SECONDS = 0.5
PEERS_SECONDS = 0.3
"""Time for the others to leave by themselves after a rank died; then they are killed."""
_NOT_JOINED = ("start", "rendezvous")


@dataclass
class Generation:
    """The ranks of this node from their start to their end; `run` supervises them."""

    number: int
    starter: Starter
    host: GenerationHost
    heartbeats: Path
    """Folder with a file for each rank."""
    events: Path
    """Folder with a file for each rank."""
    limits: WatchdogLimits
    must_beat: bool
    """Ranks run the task runtime, which sends heartbeats; a program may send some."""
    last_step: int
    """Step with which a program is done."""
    grace_seconds: float
    process_reports: ProcessReports
    now: Callable[[], float] = time.monotonic
    _living: dict[int, int] = field(default_factory=dict)
    _exits: list[RankExit] = field(default_factory=list)
    _leaders: list[int] = field(default_factory=list)
    _pids: dict[int, int] = field(default_factory=dict)
    _processes: dict[int, RankProcesses] = field(default_factory=dict)
    _asked: set[int] = field(default_factory=set)
    """Ranks that ran when they were asked to stop."""
    _started: dict[int, float] = field(default_factory=dict)
    _readers: dict[int, HeartbeatReader] = field(default_factory=dict)
    _reports: dict[int, RankEvents] = field(default_factory=dict)
    """Those of rank 0 have every save."""
    _logs: dict[int, Path] = field(default_factory=dict)

    def run(self, starts: Sequence[RankStart]) -> GenerationResult:
        """Start the ranks and return when all their processes are gone."""
        self._logs = {start.rank: start.log for start in starts}
        self._readers = {rank: HeartbeatReader(self.heartbeats / str(rank)) for rank in self._logs}
        self._start(starts)
        self._started = started = dict.fromkeys(self._logs, self.now())
        try:
            watchdog = Watchdog(self.limits, started=started, must_beat=self.must_beat)
            ending = self._watch(watchdog)
            ending = self._with_lagging_rank(ending)
            if ending.failed or ending.hang:
                self.host.report_failure(ending.failed, ending.hang)
            stacks = self._stacks(ending) if ending.hangs and self._living else {}
            beats = self._beats(self._readers)
            leftovers = leftover_commands(self._own_pids()) if self._ended_well() else ()
            processes = self.process_reports.collect(self._exits, ended_well=self._ended_well(), now=self.now())
        finally:
            self._end_all()
        return GenerationResult(
            exits=tuple(self._exits),
            failed=ending.failed,
            hang=ending.hang,
            stacks=stacks,
            stop=ending.stop,
            started=started,
            step=_common_step(beats),
            progressed=any(beat is not None and beat.steps_taken > 0 for beat in beats.values()),
            saved_step=self._reports[0].saved_step() if ending.stop and 0 in self._reports else None,
            behind=ending.behind,
            leftovers=leftovers,
            processes=processes,
        )

    def _ended_well(self) -> bool:
        return not self._living and all(rank_exit.code == 0 for rank_exit in self._exits)

    def _start(self, starts: Sequence[RankStart]) -> None:
        self.process_reports.clear(rank_start.rank for rank_start in starts)
        self._reports |= {
            rank_start.rank: RankEvents(self.events / f"{rank_start.rank}.jsonl") for rank_start in starts
        }
        self._living = self.starter.start(starts)
        for start in starts:
            if (pid := self._living.get(start.rank)) is not None:
                self._pids[start.rank] = pid
                self.process_reports.started(start, pid)
                self._leaders.append(pid)
                self._processes[start.rank] = RankProcesses(pid, self.heartbeats / str(start.rank))
                self.host.event("rank_started", rank=start.rank, pid=pid, generation=self.number)

    def _watch(self, watchdog: Watchdog) -> "_WatchEnd":
        next_check = 0.0
        while self._living:
            self.host.wait(min(WATCH_SECONDS, max(0.0, next_check - self.now())))
            self._take_exits()
            if failed := self._first_failure():
                if self._replace_dead(watchdog):
                    continue
                return _WatchEnd(failed=failed)
            if request := self.host.stop_request():
                self._stop(request)
                return _WatchEnd(stop=request)
            if halt := self.host.remote_halt():
                return _WatchEnd(hangs=halt.hangs, behind=self._behind(watchdog) if halt.hangs else None)
            if self.now() >= next_check:
                next_check = self.now() + WATCH_SECONDS
                if self._check(watchdog):
                    hang = self._behind(watchdog)
                    return _WatchEnd(hang=hang, hangs=True, behind=hang)
        return _WatchEnd()

    def _replace_dead(self, watchdog: Watchdog) -> bool:
        """Start the dead ranks again while the others stay; False: that is not possible."""
        dead = list(self._exits)
        if not self._living or any(each.code == 0 or each.is_secondary for each in dead):
            return False
        replacements = self.host.replacements(dead, self._started)
        if replacements is None:
            return False
        self.number = replacements.generation
        for rank_exit in dead:
            self._exits.remove(rank_exit)
            signal_groups([self._pids[rank_exit.rank]], signal.SIGKILL)  # child processes of the dead rank, too
            self._readers.pop(rank_exit.rank).close()
            self._readers[rank_exit.rank] = HeartbeatReader(self.heartbeats / str(rank_exit.rank))
        self._start(replacements.starts)
        for rank_exit in dead:
            self._started[rank_exit.rank] = self.now()
            watchdog.start_over(rank_exit.rank, self.now())
        return True

    def _behind(self, watchdog: Watchdog) -> Hang:
        """The rank of this node that is furthest behind: one whose process is stopped, else by the heartbeats.

        A rank can be stopped while it waits for the others, and they wait in the middle of a backward pass.
        """
        watchdog.check(self._beats(self._living), self.now())
        if stopped := [rank for rank, pid in self._speakers().items() if state(pid) == "T"]:
            found = watchdog.behind(self.now(), stopped)
            return replace(found, stopped=True, reason=f"{found.reason}; its process is stopped by a signal")
        return watchdog.behind(self.now(), self._living)

    def _check(self, watchdog: Watchdog) -> Hang | None:
        beats = self._beats(self._living)
        joined = [rank for rank, beat in beats.items() if self._has_joined(beat)]
        state: GangState = "running" if len(joined) == len(beats) else "starting"
        self.host.update_status(state, self._speakers(), joined)
        for orphan in reap(self._own_pids()):
            self.process_reports.orphan_ended(*orphan, mono=self.now())
        return watchdog.check(beats, self.now())

    def _has_joined(self, beat: Beat | None) -> bool:
        return not self.must_beat if beat is None else beat.phase not in _NOT_JOINED

    def _first_failure(self) -> RankExit | None:
        """The culprit; while only ranks that lost a peer have ended, wait CULPRIT_SECONDS for the exit of that peer."""
        rank_exit = culprit(self._exits)
        if rank_exit is None or not rank_exit.is_secondary:
            return rank_exit
        deadline = self.now() + CULPRIT_SECONDS
        while rank_exit is not None and rank_exit.is_secondary and self._living and self.now() < deadline:
            self.host.wait(0.05)
            self._take_exits()
            rank_exit = culprit(self._exits)
        return rank_exit

    def _stop(self, request: StopRequest) -> None:
        """Ask all ranks to save and leave; after the grace period they are killed with all that they started."""
        self.host.update_status("stopping", self._speakers(), ())
        if request.save:
            self._take_exits()
            self._asked = {rank for rank, pid in self._living.items() if state(pid) != "Z"}
            for rank in self._asked:
                send(self._processes[rank].living(), signal.SIGTERM)
            self._wait_for_saves(self.now() + self.grace_seconds)

    def _wait_for_saves(self, deadline: float) -> None:
        """Wait for the ranks; where the request killed a leader, what it started is asked in turn and waited for."""
        groups: set[int] = set()
        while self._living or groups:
            if self.now() >= deadline:
                return
            self.host.wait(0.05)
            killed = {
                self._pids[rank_exit.rank] for rank_exit in self._take_exits() if rank_exit.signal == signal.SIGTERM
            }
            signal_groups(killed, signal.SIGTERM)
            reap(self._own_pids())
            groups = {pid for pid in groups | killed if has_members(pid)}

    def _with_lagging_rank(self, ending: "_WatchEnd") -> "_WatchEnd":
        """Add to the reason of a hang what the flight records of the ranks show."""
        finding = describe_lagging_rank(self.heartbeats, self._speakers()) if ending.hang else ""
        if ending.hang is None or not finding:
            return ending
        return replace(ending, hang=replace(ending.hang, reason=f"{ending.hang.reason}; {finding}"))

    def _stacks(self, ending: "_WatchEnd") -> dict[str, str]:
        stacks = collect_stacks({rank: (pid, self._logs[rank]) for rank, pid in self._speakers().items()})
        if ending.hang:
            hang = ending.hang
            self.host.event("watchdog", rank=hang.rank, reason=hang.reason, stacks=stacks, generation=self.number)
        signal_groups(self._living.values(), signal.SIGKILL)
        return stacks

    def _end_all(self) -> None:
        """End all processes of this generation; those that the kernel cannot end stay."""
        self._wait_for_all(PEERS_SECONDS)
        signal_groups(self._leaders, signal.SIGKILL)
        self._wait_for_all(10.0)
        kill_orphans(self._own_pids())
        for reader in self._readers.values():
            reader.close()

    def _wait_for_all(self, seconds: float) -> None:
        deadline = self.now() + seconds
        while self._living and self.now() < deadline:
            self.host.wait(0.05)
            self._take_exits()

    def _take_exits(self) -> list[RankExit]:
        self.process_reports.look(self._living)
        taken = [self._reported(each) for each in self.starter.exits()]
        for rank_exit in taken:
            self._exits.append(rank_exit)
            self._living.pop(rank_exit.rank, None)
            self.host.event(
                "rank_exited", rank=rank_exit.rank, code=rank_exit.code, signal=rank_exit.signal, generation=self.number
            )
        return taken

    def _reported(self, death: RankExit) -> RankExit:
        """`death` with what the rank says about it; one that ends with 0 unasked needs to say nothing."""
        if death.code == 0 and death.rank not in self._asked:
            return with_report(death, None, finished=True)
        report = self._reports[death.rank].report()
        return with_report(death, report, finished=self._is_done(death.rank, report))

    def _is_done(self, rank: int, report: RankReport | None) -> bool:
        """The training of a rank that was asked to stop had come to its end: by its runtime, or by its steps."""
        if self.must_beat:
            return report is not None and report.code == 0
        beat = self._readers[rank].read()
        return beat is not None and beat.step >= self.last_step

    def _speakers(self) -> dict[int, int]:
        """Process of each living rank: the first one that joined, or its leader."""
        return {rank: self._processes[rank].living()[0] for rank in self._living}

    def _beats(self, ranks: Collection[int]) -> dict[int, Beat | None]:
        return {rank: self._readers[rank].read() for rank in ranks}

    def _own_pids(self) -> set[int]:
        return {*self.host.own_pids(), *self.starter.pids(), *self._living.values()}


@dataclass(frozen=True, kw_only=True, slots=True)
class _WatchEnd:
    """Why the watch ended; no field is set: all ranks left."""

    failed: RankExit | None = None
    hang: Hang | None = None
    stop: StopRequest | None = None
    hangs: bool = False
    behind: Hang | None = None


def _common_step(beats: Mapping[int, Beat | None]) -> int | None:
    steps = [beat.step for beat in beats.values() if beat is not None and beat.step >= 0]
    return min(steps) if steps and len(steps) == len(beats) else None
