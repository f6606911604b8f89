"""SL2: a gang has one job, wherever its drivers die: every crash point of two drivers, and seeded races of several."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from gangline.launch.slurm.commands import SlurmAway, SlurmJob
from gangline.launch.slurm.launcher import start_job

NAME, COMMENT = "run-1", "gangline a b"
CALLS = 7
"""More calls than a submission makes: the points behind its last one are submissions that are not disturbed."""


class Killed(BaseException):
    """The driver dies here."""


@dataclass
class StubSlurm:
    """Jobs by number; one that was released runs, and is forgotten once it is over."""

    jobs: dict[str, str] = field(default_factory=dict)
    """Number to state: HELD, RUNNING or OVER."""
    started: list[str] = field(default_factory=list)
    noted: str | None = None

    def submit(self) -> str:
        number = str(len(self.jobs) + 9)  # 9 is a longer text than 10 is not: numbers are compared as numbers
        self.jobs[number] = "HELD"
        return number

    def named(self, name: str) -> list[SlurmJob]:
        reasons = {"HELD": ("PENDING", "JobHeldUser"), "RUNNING": ("RUNNING", "None")}
        found = [(number, *reasons[state]) for number, state in self.jobs.items() if state in reasons]
        jobs = [SlurmJob(number=number, state=state, reason=why, comment=COMMENT) for number, state, why in found]
        others = [SlurmJob(number="3", state="RUNNING", comment="another of this name")]
        return sorted(others + jobs, key=lambda job: int(job.number))

    def release(self, number: str) -> None:
        if self.jobs[number] == "HELD":
            self.jobs[number] = "RUNNING"
            self.started.append(number)

    def cancel(self, number: str) -> None:
        self.jobs[number] = "OVER"

    def known(self) -> str | None:
        return self.noted

    def note(self, number: str) -> None:
        self.noted = number

    def end_all(self) -> None:
        """What runs is over, and forgotten."""
        self.jobs = {number: "OVER" if state == "RUNNING" else state for number, state in self.jobs.items()}


@dataclass
class Driver:
    """A driver whose call number `point` is its last: not sent, sent without an answer, or without one in time."""

    slurm: StubSlurm
    point: int | None = None
    how: str = "before"
    calls: int = 0

    def _call(self, work):
        self.calls += 1
        hit = self.calls - 1 == self.point
        if hit and self.how == "before":
            raise Killed
        answer = work()
        if hit:
            raise Killed if self.how == "after" else SlurmAway("no answer in time")
        return answer

    def named(self, name):
        return self._call(lambda: self.slurm.named(name))

    def release(self, number):
        self._call(lambda: self.slurm.release(number))

    def cancel(self, number):
        self._call(lambda: self.slurm.cancel(number))

    def start(self) -> str:
        return start_job(
            self,
            NAME,
            COMMENT,
            submit=lambda: self._call(self.slurm.submit),
            known=lambda: self._call(self.slurm.known),
            note=lambda number: self._call(lambda: self.slurm.note(number)),
        )


def start(driver: Driver) -> None:
    try:
        driver.start()
    except (Killed, SlurmAway):
        return


def crash_points() -> Iterator[tuple]:
    for first in range(CALLS):
        for second in range(CALLS):
            for one in ("before", "after", "away"):
                for other in ("before", "after", "away"):
                    for ends in (False, True):
                        yield first, one, second, other, ends


def test_two_drivers_that_die_anywhere_start_one_job():
    points = list(crash_points())
    assert len(points) >= 800
    for first, one, second, other, ends in points:
        slurm = StubSlurm()
        start(Driver(slurm, first, one))
        if ends:
            slurm.end_all()
        start(Driver(slurm, second, other))
        if ends:
            slurm.end_all()
        number = Driver(slurm).start()
        assert slurm.started == [number], (first, one, second, other, ends, slurm)
        assert [each for each, state in slurm.jobs.items() if state == "HELD"] == []


def test_drivers_that_race_without_a_lock_start_one_job():
    for seed in range(200):
        race(seed)


def race(seed):
    """Calls of drivers interleave in a seeded order, some die, and the job may end while others still look."""
    slurm, draw = StubSlurm(), random.Random(seed)
    waiting = [_Interleaved(slurm, point=draw.choice([None, *range(CALLS)])) for _ in range(draw.randint(2, 5))]
    while waiting:
        each = draw.choice(waiting)
        if not each.advance():
            waiting.remove(each)
        if draw.random() < 0.1:
            slurm.end_all()
    Driver(slurm).start()
    assert len(slurm.started) == 1, (seed, slurm)
    assert "HELD" not in slurm.jobs.values(), f"seed {seed}: a job that is not the gang's waits for nobody"


class _Interleaved(Driver):
    """Runs in a thread of its own that makes a call whenever it is told to."""

    def __init__(self, slurm, point):
        import threading

        super().__init__(slurm, point, "after")
        self._turn, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._is_over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            start(self)
        finally:
            self._is_over = True
            self._done.release()

    def _call(self, work):
        self._turn.acquire()
        try:
            return super()._call(work)
        finally:
            self._done.release()

    def advance(self) -> bool:
        """Let it make one call; False: it is over."""
        if not self._is_over:
            self._turn.release()
            assert self._done.acquire(timeout=20)
        return not self._is_over


def test_jobs_of_the_same_name_that_are_others_are_left_alone():
    slurm = StubSlurm()
    assert Driver(slurm).start() == "9"
    assert slurm.jobs == {"9": "RUNNING"}
