"""Progress of a running stage, folded from the events of its gang; terminals and pages draw it."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from gangline.launch.protocol import GangEvent, GangStatus
from gangline.report.text import clean
from gangline.spec.record import Record, StageInfo
from gangline.units import format_count, format_number, format_seconds, sparkline

RECENT = 20
"""Steps that speed and phases are averaged over."""
FEWEST = 2
"""Timed steps that are needed before a time is shown."""
SHOWN_RANKS = 8
SHOWN_MEMBERS = 3
"""Members that are named while a federation waits for them."""
ACTIVITY_WORDS = {
    "data": "fetching data", "build": "building the model", "resume": "looking for a checkpoint",
    "checkpoint": "saving", "evaluate": "evaluating", "profile": "writing a profile",
}  # fmt: skip
"""Activity of rank 0 while it takes no steps, by phase."""
SILENT_SECONDS = 60.0
"""Least silence of a worker of a parameter server that is named."""
LARGEST_DRAWN = 1e30
"""A diverged loss is written, not drawn: on its scale all other steps would look alike."""


@dataclass
class RankPhases:
    """Seconds by phase of the recent steps of one rank."""

    recent: deque[dict[str, float]] = field(default_factory=lambda: deque(maxlen=RECENT))

    def shares(self) -> dict[str, float]:
        """Phase to share of the rank's time; empty before its first step."""
        total: dict[str, float] = {}
        for phases in self.recent:
            for phase, seconds in phases.items():
                total[phase] = total.get(phase, 0.0) + seconds
        whole = sum(total.values())
        return {phase: seconds / whole for phase, seconds in total.items()} if whole else {}


@dataclass
class StageProgress:
    """One running stage."""

    stage: str
    plan: str = ""
    steps: int | None = None
    step: int = 0
    job: str = ""
    jobs_ahead: int = 0
    """Jobs of this gang that come before, each with as many steps."""
    waiting: str = ""
    state: str = ""
    doing: str = ""
    """One of `ACTIVITY_WORDS`; empty: it steps, or that is not known."""
    steps_now: bool = False
    """Rank 0 has made steps since its gang started, or started again."""
    is_over: bool = False
    """Rank 0 is done."""
    situation: tuple[str, bool, bool] = ("", False, False)
    """State of the gang, whether it waits, whether its backend is unreachable: views print a change at once."""
    stale_seconds: float = 0.0
    losses: list[float] = field(default_factory=list)
    speeds: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=RECENT))
    """(seconds, tokens) of the recent steps of rank 0; not of its first, which has what a program does once."""
    ranks: dict[int, RankPhases] = field(default_factory=dict)
    round: str = ""
    """Last merged round of a federation, `round 84/200`, or merged blocks of workers; empty: there are none."""
    answered: str = ""
    """How many members answered in it, or how old the pushes of workers are, and which one is silent."""
    members: str = ""
    """Who is missing while fewer members than the quorum have accepted; empty: a federation does not wait for any."""

    def see(self, event: GangEvent) -> None:
        """Fold one event in."""
        if event.kind == "progress":
            self._see_rank(event.data)
        elif event.kind == "waiting":
            self._see_waiting(event.text)
        elif event.kind == "state" and event.status is not None:
            self._see_state(event.status)
        elif event.kind in ("restart", "note"):
            self.state = clean(event.text, 120)
            self.steps_now = self.steps_now and event.kind == "note"

    def _see_state(self, status: GangStatus) -> None:
        self.steps_now = self.steps_now and status.state != "waiting"  # a queue stopped it: its steps are past
        trains = status.state in ("starting", "running") and self.steps_now  # the state may be older than the steps
        self.state = "" if trains else _state_words(status)
        self.doing = "" if status.state in ("stopping", "waiting") else self.doing
        self.stale_seconds = status.stale_seconds
        self.situation = (status.state, self.situation[1], self.stale_seconds > 0)
        self._see_waiting(status.waiting)

    def _see_waiting(self, text: str) -> None:
        self.waiting = clean(text)
        self.situation = (self.situation[0], bool(text), self.situation[2])

    def _see_rank(self, data: dict[str, Any]) -> None:
        name = data.get("event")
        if name == "step":
            self._see_step(data)
        elif name == "round" and data.get("rank", 0) == 0:
            self._see_round(data)
        elif name == "merged":
            self._see_merge(data)
        elif name == "members" and data.get("rank", 0) == 0:
            self._see_members(data)
        elif data.get("rank", 0) == 0:
            self._see_first(name, data)

    def _see_first(self, name: Any, data: dict[str, Any]) -> None:
        """Take the fields that only rank 0 reports."""
        if name == "busy":
            self.doing = ACTIVITY_WORDS.get(str(data.get("phase")), "")
            if self.losses:  # else it counts the job before
                self.step = max(self.step, int(data.get("step") or 0))
        elif name == "evaluated" or (name == "saved" and self.doing == ACTIVITY_WORDS["checkpoint"]):
            self.doing = ""
        elif name == "started":
            self.steps_now = False
        elif name == "done":
            self.doing, self.is_over = "", data.get("exit") == 0
        elif name == "job_started":
            jobs, index = int(data.get("jobs") or 1), int(data.get("index") or 0)
            self.jobs_ahead = max(jobs - index - 1, 0)
            self.job = f"seed {clean(data.get('seed'), 20)} ({index + 1} of {jobs})" if jobs > 1 else ""
            self.steps, self.step, self.losses = data.get("steps") or self.steps, 0, []
        elif name == "resumed":
            self.doing, self.step = "", int(data.get("step") or 0)

    def _see_step(self, data: dict[str, Any]) -> None:
        rank = int(data.get("rank", 0))
        self.waiting = self.state = ""
        self.ranks.setdefault(rank, RankPhases()).recent.append(data.get("phases") or {})
        if rank == 0:
            is_timed, self.steps_now = self.steps_now, True
            self.doing, self.is_over = "", False
            before, self.step = self.step, int(data["step"])
            self.losses.append(_number(data.get("loss"), float("nan")))
            if is_timed:
                steps = max(self.step - before, 1) if self.round else 1  # a merge may be many
                seconds, tokens = _number(data.get("seconds"), 0.0), _number(data.get("tokens"), 0.0)
                self.speeds.append((seconds / steps, tokens / steps))

    def _see_members(self, data: dict[str, Any]) -> None:
        accepted, quorum, missing = data.get("accepted"), data.get("quorum"), data.get("missing")
        self.members = ""
        if isinstance(accepted, int) and isinstance(quorum, int) and accepted < quorum:
            count = f"{accepted} of {clean(data.get('members'), 20)} have accepted, the quorum is {quorum}"
            names = [clean(each, 100) for each in missing if isinstance(each, str)] if isinstance(missing, list) else []
            self.members = " · ".join([f"waiting for members: {count}", *names[:SHOWN_MEMBERS]])

    def _see_round(self, data: dict[str, Any]) -> None:
        """A round of a federation is many local steps: what remains is counted in rounds."""
        before, self.step, self.doing, self.is_over = self.step, int(data["step"]), "", False
        self.waiting = self.state = self.members = ""
        self.losses.append(_number(data.get("loss"), float("nan")))
        self.round = f"round {clean(data.get('round'), 20)}/{clean(data.get('rounds'), 20)}"
        self.answered = f"{clean(data.get('answered'), 20)} of {clean(data.get('members'), 20)} answered"
        if self.step > before:
            self.speeds.append((_number(data.get("seconds"), 0.0) / (self.step - before), 0.0))

    def _see_merge(self, data: dict[str, Any]) -> None:
        """A merge of a parameter server; its loss comes with the step that follows."""
        self.round = f"block {clean(data.get('blocks'), 20)}/{clean(data.get('of'), 20)}"
        parts = [f"age {_number(data.get('age_mean'), 0.0):.1f}"]
        parts += [f"{each} {word}" for word in ("dropped", "refused") if (each := int(data.get(f"num_{word}") or 0))]
        self.answered = ", ".join(parts)
        if (silent := _number(data.get("silent_seconds"), 0.0)) > SILENT_SECONDS:
            worker = clean(data.get("silent_worker"), 20)
            self.answered += f" \u00b7 worker {worker} has pushed nothing for {format_seconds(silent)}"

    @property
    def tokens_per_second(self) -> float | None:
        """Mean of the recent steps; None: steps do not report tokens."""
        seconds, tokens = sum(s for s, _ in self.speeds), sum(t for _, t in self.speeds)
        return tokens / seconds if seconds and tokens else None

    @property
    def eta_seconds(self) -> float | None:
        """Time that is left at the speed of the recent steps; None before there are enough."""
        if len(self.speeds) < FEWEST or not self.steps:
            return None
        return self._seconds_of(max(self.steps - self.step, 0))

    @property
    def ends_in_seconds(self) -> float | None:
        """Seconds until the last step of the gang; None before the first and after the last step."""
        if len(self.speeds) < FEWEST or not self.steps or (self.step >= self.steps and not self.jobs_ahead):
            return None
        return self._seconds_of(max(self.steps - self.step, 0) + self.jobs_ahead * self.steps)

    def _seconds_of(self, steps: int) -> float:
        return sum(s for s, _ in self.speeds) / len(self.speeds) * steps

    def sentence(self, *, spark: int = 0) -> str:
        """`ddp-2 62/120 loss 2.71 · 9.1 k tokens/s · ETA 7 s`, or why nothing moves yet; empty: nothing to say."""
        said = f"waits: {self.waiting}" if self.waiting else self._moves(spark)
        if not self.stale_seconds:
            return said
        away = f"no response from where it runs for {format_seconds(self.stale_seconds)}, its ranks continue"
        return f"{said} · {away}" if said else away

    def _moves(self, spark: int) -> str:
        parts = [part for part in (self.plan, self.job) if part]
        now = self._now()
        if not self.losses:
            return " ".join([*parts, now]).strip() if self.job or now else ""
        is_within = self.steps and self.step <= self.steps
        count = f"{self.step:,}/{self.steps:,}" if is_within else f"step {self.step:,}"
        head = [*parts, self.round or count]
        if spark:
            head.append(sparkline([loss for loss in self.losses if abs(loss) < LARGEST_DRAWN], spark))
        said = [" ".join([*head, f"loss {format_number(self.losses[-1])}"])]
        if self.answered:
            said.append(self.answered)
        if now:
            return " · ".join([*said, now])
        if self.tokens_per_second:
            said.append(f"{format_count(self.tokens_per_second)} tokens/s")
        if self.step == self.steps:
            said.append("finishing")
        elif is_within and self.eta_seconds is not None and self.situation[0] != "ended":
            said.append(f"ETA {format_seconds(self.eta_seconds)}")
        return " · ".join(said)

    def _now(self) -> str:
        """Activity other than steps; empty: the rank takes steps."""
        if self.situation[0] == "stopping" and self.state:
            is_over = self.is_over or (self.losses and self.steps and self.step >= self.steps)
            state = "its ranks leave" if is_over else self.state
            return f"{state}, {self.doing}" if self.doing else state
        return self.members or self.doing or self.state

    def slowest_first(self) -> list[tuple[int, dict[str, float]]]:
        """Ranks to show, at most eight: those that wait least hold the others up."""
        rows = [(rank, phases.shares()) for rank, phases in sorted(self.ranks.items())]
        if len(rows) > SHOWN_RANKS:
            rows = sorted(rows, key=lambda row: (row[1].get("wait", 0.0), row[0]))[:SHOWN_RANKS]
        return rows


def _number(value: Any, otherwise: float) -> float:
    """Ranks write null for what is not finite, and leave out what a batch does not have."""
    return otherwise if value is None else float(value)


@dataclass
class StageOutlook:
    """Facts about the run before a stage begins: its id, its plan, its number of steps."""

    run_id: str | None = None
    plan: str = ""
    steps: int | None = None

    def learn(self, record: Record) -> None:
        """Take the id of the run, its plan and its steps from `record`."""
        self.run_id = record.run.id
        if record.plan is not None:
            self.plan, self.steps = clean(record.plan.name, 60), record.plan.steps

    def stage_ended(self, name: str, info: StageInfo) -> None:
        """Take the plan and the steps from the result of the plan stage."""
        if name == "plan" and "name" in info.outputs:
            self.plan, self.steps = clean(info.outputs["name"], 60), info.outputs.get("steps")

    def begin(self, stage: str) -> StageProgress:
        """Progress of a stage that starts now."""
        plan = "1 rank" if self.plan == "none" else self.plan  # the word of a strategy would read as no rank
        return StageProgress(stage, plan=plan if stage == "train" else "", steps=self.steps)


def _state_words(status: GangStatus) -> str:
    """What a gang does before its first step and after its last."""
    joined = (
        f", {status.joined} of {status.ranks} ranks joined" if status.ranks and status.joined < status.ranks else ""
    )
    return {"starting": f"starting{joined}", "running": "started", "stopping": "stopping"}.get(status.state, "")
