"""One generation: ranks that start together, are watched together, and end together, whatever ends them."""

import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from gangline.spec.gang import GangState
from gangline.train.environment import WatchdogLimits
from gangline.train.exit_codes import RankExit, culprit
from gangline.train.heartbeat import Beat, HeartbeatReader
from gangline.train.loop.watchdog import Hang, Watchdog
from gangline.train.reaper import bury, end_orphans, signal_groups
from gangline.train.stacks import collect
from gangline.train.starters import RankStart, Starter
from gangline.train.stop import StopOrder

WATCH_SECONDS = 0.5
PEERS_SECONDS = 0.3
"""After a death the others mostly notice and leave by themselves; then they are killed."""
DOUBT_SECONDS = 1.0
"""A rank that lost a peer waits so long for the news of which."""
_NOT_JOINED = ("start", "rendezvous")


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How a generation ended."""

    exits: tuple[RankExit, ...]
    """In the order they were seen."""
    failed: RankExit | None
    """Who failed first; None: nobody did, it hung or was asked to stop."""
    hang: Hang | None
    stacks: dict[str, str]
    order: StopOrder | None
    started: dict[int, float]
    step: int | None
    """Last step that all ranks had finished."""
    progressed: bool
    """Some rank finished a step."""


class Host(Protocol):
    """What a generation asks of its keeper."""

    def wait(self, seconds: float) -> None:
        """Sleep until there is news or so long."""
        ...

    def order(self) -> StopOrder | None: ...

    def own_pids(self) -> Collection[int]: ...

    def changed(self, state: GangState, ranks: Mapping[int, int], joined: Sequence[int]) -> None: ...

    def event(self, event: str, **values: object) -> None: ...


@dataclass
class Generation:
    number: int
    starter: Starter
    host: Host
    heartbeats: Path
    limits: WatchdogLimits
    must_beat: bool
    """Ranks run the task runtime, which beats; a program may."""
    grace_seconds: float
    now: Callable[[], float] = time.monotonic
    _living: dict[int, int] = field(default_factory=dict)
    _exits: list[RankExit] = field(default_factory=list)
    _leaders: list[int] = field(default_factory=list)
    _readers: dict[int, HeartbeatReader] = field(default_factory=dict)
    _logs: dict[int, Path] = field(default_factory=dict)

    def run(self, starts: Sequence[RankStart]) -> Outcome:
        """From the first fork to the last burial."""
        self._logs = {each.rank: each.log for each in starts}
        self._readers = {rank: HeartbeatReader(self.heartbeats / str(rank)) for rank in self._logs}
        self._living = self.starter.start(starts)
        self._leaders = list(self._living.values())
        started = dict.fromkeys(self._logs, self.now())
        for rank, pid in self._living.items():
            self.host.event("rank_started", rank=rank, pid=pid, generation=self.number)
        try:
            failed, hang, order, stacks = self._watch(Watchdog(self.limits, started=started, must_beat=self.must_beat))
            beats = self._beats(self._readers)
        finally:
            self._end_all()
        return Outcome(
            exits=tuple(self._exits),
            failed=failed,
            hang=hang,
            stacks=stacks,
            order=order,
            started=started,
            step=_common_step(beats),
            progressed=any(beat is not None and beat.steps_taken > 0 for beat in beats.values()),
        )

    def _watch(self, watchdog: Watchdog) -> tuple[RankExit | None, Hang | None, StopOrder | None, dict[str, str]]:
        next_look = 0.0
        while self._living:
            self.host.wait(min(WATCH_SECONDS, max(0.0, next_look - self.now())))
            self._take_exits()
            if failed := self._first_failure():
                return failed, None, None, {}
            if order := self.host.order():
                self._stop(order)
                return None, None, order, {}
            if self.now() >= next_look:
                next_look = self.now() + WATCH_SECONDS
                hang = self._look(watchdog)
                if hang is not None:
                    return None, hang, None, self._stacks(hang)
        return None, None, None, {}

    def _look(self, watchdog: Watchdog) -> Hang | None:
        beats = self._beats(self._living)
        joined = [rank for rank, beat in beats.items() if self._has_joined(beat)]
        state: GangState = "running" if len(joined) == len(beats) else "starting"
        self.host.changed(state, self._living, joined)
        bury(self._own_pids())
        return watchdog.check(beats, self.now())

    def _has_joined(self, beat: Beat | None) -> bool:
        return not self.must_beat if beat is None else beat.phase not in _NOT_JOINED

    def _first_failure(self) -> RankExit | None:
        """The culprit; while only ranks that lost a peer are known, the death of that peer is awaited for a while."""
        found = culprit(self._exits)
        if found is None or not found.is_secondary:
            return found
        patience = self.now() + DOUBT_SECONDS
        while found is not None and found.is_secondary and self._living and self.now() < patience:
            self.host.wait(0.05)
            self._take_exits()
            found = culprit(self._exits)
        return found

    def _stop(self, order: StopOrder) -> None:
        """Ask all ranks to save and leave; whoever stays past the grace is killed."""
        self.host.changed("stopping", self._living, ())
        if order.save:
            signal_groups(self._living.values(), signal.SIGTERM)
            self._wait_for_all(self.grace_seconds)

    def _stacks(self, hang: Hang) -> dict[str, str]:
        stacks = collect({rank: (pid, self._logs[rank]) for rank, pid in self._living.items()})
        self.host.event("watchdog", rank=hang.rank, reason=hang.reason, stacks=stacks, generation=self.number)
        signal_groups(self._living.values(), signal.SIGKILL)
        return stacks

    def _end_all(self) -> None:
        """Nothing of this generation is left when it returns, but what the kernel itself holds on to."""
        self._wait_for_all(PEERS_SECONDS)
        signal_groups(self._leaders, signal.SIGKILL)
        self._wait_for_all(10.0)
        end_orphans(self._own_pids())
        for reader in self._readers.values():
            reader.close()

    def _wait_for_all(self, seconds: float) -> None:
        patience = self.now() + seconds
        while self._living and self.now() < patience:
            self.host.wait(0.05)
            self._take_exits()

    def _take_exits(self) -> None:
        for each in self.starter.exits():
            self._exits.append(each)
            self._living.pop(each.rank, None)
            self.host.event("rank_exited", rank=each.rank, code=each.code, signal=each.signal, generation=self.number)

    def _beats(self, ranks: Collection[int]) -> dict[int, Beat | None]:
        return {rank: self._readers[rank].read() for rank in ranks}

    def _own_pids(self) -> set[int]:
        return {*self.host.own_pids(), *self.starter.pids(), *self._living.values()}


def _common_step(beats: Mapping[int, Beat | None]) -> int | None:
    steps = [beat.step for beat in beats.values() if beat is not None and beat.step >= 0]
    return min(steps) if steps and len(steps) == len(beats) else None
