"""Watchdog: detects a hang of the gang from heartbeats. Pure: times are given, it reads and kills nothing.

For a rank that sends no heartbeat (a plain program) its keeper only checks that it runs; a task must send some.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

from gangline.keeper.ipc.environment import WatchdogLimits
from gangline.keeper.ipc.heartbeat import Beat

WINDOW = 20
"""Steps whose median counts as the usual duration."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hang:
    """A rank that makes no progress."""

    rank: int
    """The rank that is behind; not always the one that was silent longest."""
    reason: str
    silent_seconds: float
    step: int = -2
    """Last finished step; -1: none yet, -2: the rank never sent a heartbeat."""
    waits: bool = False
    """Whether it waited for other ranks."""
    stopped: bool = False
    """Its process is stopped by a signal, so it is behind whatever the heartbeats say."""

    @property
    def progress(self) -> tuple[bool, int, bool, float]:
        """Sort key, least progress first: stopped, fewest steps, not waiting for others, silent longest."""
        return (not self.stopped, self.step, self.waits, -self.silent_seconds)


@dataclass(slots=True)
class _Track:
    started: float
    steps_taken: int = 0
    step_mono: float = 0.0
    durations: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    beat: Beat | None = None

    def see(self, beat: Beat | None) -> None:
        if beat is not None and beat.steps_taken > self.steps_taken:
            if self.steps_taken:
                self.durations.append((beat.mono - self.step_mono) / (beat.steps_taken - self.steps_taken))
            self.steps_taken, self.step_mono = beat.steps_taken, beat.mono
        self.beat = beat


class Watchdog:
    """Watches the ranks of one generation."""

    def __init__(self, limits: WatchdogLimits, *, started: Mapping[int, float], must_beat: bool) -> None:
        """`started`: monotonic time of each rank's start. `must_beat`: a rank that never beats counts as hung."""
        self._limits = limits
        self._must_beat = must_beat
        self._tracks = {rank: _Track(started=mono) for rank, mono in started.items()}

    def start_over(self, rank: int, mono: float) -> None:
        """`rank` was started again at `mono`; for the others the limits of the first steps apply again."""
        for track in self._tracks.values():
            track.durations.clear()
        self._tracks[rank] = _Track(started=mono)

    def check(self, beats: Mapping[int, Beat | None], now: float) -> Hang | None:
        """The hang of the living ranks, given their last beats; None: there is none."""
        for rank, beat in beats.items():
            self._tracks[rank].see(beat)
        if not any(now > self._limit(self._tracks[rank])[0] for rank in beats):
            return None
        return self.behind(now, beats)

    def behind(self, now: float, ranks: Iterable[int] | None = None) -> Hang:
        """The rank of `ranks` (None: all) that is furthest behind; ranks that never beat only if they must."""
        asked = list(self._tracks if ranks is None else ranks)
        beating = [rank for rank in asked if self._must_beat or self._tracks[rank].beat is not None]
        return min((self._describe(rank, now) for rank in beating or asked), key=lambda each: each.progress)

    def _limit(self, track: _Track) -> tuple[float, str]:
        """Monotonic time at which a rank counts as hung, and the limit as text."""
        beat = track.beat
        if beat is None:
            seconds = self._limits.start if self._must_beat else float("inf")
            return track.started + seconds, f"{seconds:.0f} s to start"
        if track.durations:
            usual = median(track.durations)
            seconds, text = 2 * usual + self._limits.extra, f"2 x its step of {usual:.2f} s + {self._limits.extra:g} s"
        else:
            seconds, text = self._limits.first, f"{self._limits.first:g} s for the first steps"
        return max(beat.mono + seconds, beat.expect_until), text

    def _describe(self, rank: int, now: float) -> Hang:
        track = self._tracks[rank]
        limit = self._limit(track)[1]
        if track.beat is None:
            silent = now - track.started
            return Hang(
                rank=rank, silent_seconds=silent, reason=f"rank {rank} sent no heartbeat in {silent:.1f} s ({limit})"
            )
        silent, step, phase = now - track.beat.mono, track.beat.step, track.beat.phase
        where = f"after step {step}" if step >= 0 else "before its first step"
        reason = f"rank {rank} made no progress for {silent:.1f} s {where}, in phase {phase!r} ({limit})"
        return Hang(rank=rank, silent_seconds=silent, reason=reason, step=step, waits=phase == "wait")
