"""Events of ranks and keepers around a fault, and what they show: the aftermath, effects of an outage, samples."""

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from gangline.errors import StorageError
from gangline.line.results.training_summary import summarize_training
from gangline.spec.gang.status import read_event
from gangline.spec.measurements import Samples
from gangline.spec.record import SLOW
from gangline.storage.folder.safe_paths import read_below

Event = dict[str, Any]
_SAVES = ("saved", "save_failed")


@dataclass(frozen=True, kw_only=True, slots=True)
class DrillHistory:
    """Events of a gang so far, in order of time."""

    ranks: tuple[Event, ...] = ()
    keepers: tuple[Event, ...] = ()

    @staticmethod
    def read(home: Path) -> "DrillHistory":
        """Read the files of a gang below `home`, without lines that a dying process left incomplete."""
        ranks = [event for path in sorted((home / "out" / "ranks").glob("*.jsonl")) for event in _events(home, path)]
        keepers = [event for path in sorted(home.glob("keeper-*.jsonl")) for event in _events(home, path)]
        return DrillHistory(ranks=_ordered(ranks), keepers=_ordered(keepers))

    def of_rank_0(self, name: str, *, after: float = float("-inf"), before: float = float("inf")) -> list[Event]:
        """Events `name` of rank 0 between two times of the monotonic clock."""
        return [e for e in self.ranks if e["event"] == name and e["rank"] == 0 and after < e["mono"] <= before]

    def steps(self, *, after: float = float("-inf"), before: float = float("inf")) -> list[Event]:
        """Steps that rank 0 finished between two times of the monotonic clock."""
        return self.of_rank_0("step", after=after, before=before)

    def step_seconds(self, generation: int, *, after: float = float("-inf"), before: float) -> float | None:
        """Median seconds of a step of `generation` between two times; None if there are too few."""
        times = [e["mono"] for e in self.steps(after=after, before=before) if e["generation"] == generation]
        return median(later - earlier for earlier, later in pairwise(times)) if len(times) > 1 else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Injection:
    """A fault that was injected."""

    rank: int
    step: int
    """Last step that the rank had finished."""
    generation: int
    mono: float
    seconds: float | None = None
    """Duration of the fault; None if momentary."""
    ranks: int = 0
    """World size that was requested; 0 if none."""
    stays: bool = False
    """No new generation is expected: this one continues, or the gang ends."""
    ends: int | None = None
    """Exit code that is expected of the gang; None: the training continues."""
    every: int = 0
    """Steps between checkpoints; 0 if unknown."""
    steps: int = 0
    """Steps of the training; 0 if unknown."""
    patience: float = float("inf")
    """Seconds for which saves may fail before the ranks exit."""

    def saves_at(self, step: int) -> bool:
        """Whether a checkpoint is due after `step`."""
        return bool(self.every) and (step % self.every == 0 or step == self.steps)


@dataclass(frozen=True, kw_only=True, slots=True)
class Aftermath:
    """What happened after an injection, by the events; None: not yet, or never."""

    detect_seconds: float | None = None
    detected: str = ""
    """Sentence on the detection."""
    recover_seconds: float | None = None
    new_step: int | None = None
    """First step finished after the injection; of the new generation, if there is one."""
    checkpoint_step: int | None = None
    """Step that the new generation resumed from; 0: the beginning."""
    lost_steps: int | None = None
    went_on_to: int | None = None
    """Last step of a generation that ignored the request to stop; None otherwise."""
    lost_seconds: float | None = None
    """Seconds until the training was past the last step before the injection."""
    reached: int = 0
    """Last step before the injection."""
    durable: int = 0
    """Step of the newest durable checkpoint at the injection."""
    saves_failed: bool = False
    """The last save before the injection failed."""
    saves: bool = True
    """The program saved at any time, or tried to."""
    restarts: int = 0
    charged: int = 0
    """Restarts charged on the restart budget."""
    usual_step: float | None = None
    """Median seconds of a step before the injection."""
    source: str = ""
    """Source of the new generation's checkpoint: `copy` in the memory of nodes, or `store`."""
    exit_code: int | None = None
    """Exit code of the gang, if it has ended."""
    answer: str = ""
    """Response to the step that was not finite: stop, skip or rollback."""
    bad_saves: tuple[int, ...] = ()
    """Saved steps that should not exist, because the gang was expected to end before."""
    world_size: int | None = None
    breaks: tuple[str, ...] = ()
    """Broken promises, as sentences."""


def aftermath(history: DrillHistory, injection: Injection) -> Aftermath:
    """Measure what followed `injection`.

    A killed gang returns in a new generation. A frozen one may do so or continue: then the first step counts that was
    finished after the freeze.
    """
    detected = _detection(history, injection)
    generations = [e for e in history.keepers if e["event"] == "generation_started" and e["mono"] > injection.mono]
    restarts = [e for e in history.keepers if e["event"] == "restart" and e["mono"] > injection.mono]
    charged = sum(bool(e.get("charged")) for e in restarts)
    reached = max([injection.step, *(e["step"] for e in history.steps(before=injection.mono))])
    restarts_gang = bool(generations) or (injection.seconds is None and not injection.stays)
    back = history.of_rank_0("resumed", after=injection.mono)  # by a new generation or a rollback
    new = [
        e for e in history.steps(after=injection.mono) if not restarts_gang or e["generation"] > injection.generation
    ]
    over = injection.mono + (0.0 if restarts_gang else injection.seconds or 0.0)
    progress = next((e for e in new if e["step"] > reached and e["mono"] > over), None)
    goes_back = restarts_gang or bool(back)
    first = new[0] if goes_back and new else progress
    resumed = int(back[0]["step"]) if back else 0 if restarts_gang else reached
    durable, saves_failed = _saved(history, injection)
    answers = (e["answer"] for e in history.ranks if e["event"] == "non_finite" and e["mono"] > injection.mono)
    ended = next(
        (e["exit_code"] for e in history.keepers if e["event"] == "ended" and e["mono"] > injection.mono), None
    )
    if injection.ends is not None:
        first, progress = None, None
        resumed = max((e["step"] for e in history.ranks if e["event"] == "saved"), default=0)
    return Aftermath(
        detect_seconds=detected["mono"] - injection.mono if detected else None,
        detected=_sentence(detected, charged) if detected else "",
        recover_seconds=first["mono"] - injection.mono if first else None,
        new_step=first["step"] if first else None,
        checkpoint_step=resumed if goes_back and first else None,
        lost_steps=max(0, reached - resumed) if first or (injection.ends is not None and ended is not None) else None,
        lost_seconds=progress["mono"] - injection.mono if progress else None,
        went_on_to=_first_new_step(history, injection, reached)
        if restarts_gang and not generations and not restarts
        else None,
        reached=reached,
        durable=durable,
        saves_failed=saves_failed,
        saves=any(e["event"] in _SAVES for e in history.ranks),
        restarts=len(restarts),
        charged=charged,
        usual_step=history.step_seconds(injection.generation, before=injection.mono),
        source=str(back[0].get("source", "")) if back else "",
        exit_code=ended,
        answer=str(next(answers, "")),
        bad_saves=_bad_saves(history, injection),
        world_size=generations[-1].get("world_size") if generations else None,
        breaks=tuple(steps_backwards(history)),
    )


def _first_new_step(history: DrillHistory, injection: Injection, reached: int) -> int | None:
    same = (e["step"] for e in history.steps(after=injection.mono) if e["generation"] == injection.generation)
    last = max(same, default=reached)
    return last if last > reached else None


def steps_backwards(history: DrillHistory) -> list[str]:
    """Sentences on generations that started before the last durable checkpoint, which breaks invariant I5."""
    found, generation, last = [], None, 0
    saves = [event for event in history.ranks if event["rank"] == 0 and event["event"] == "saved"]
    for event in history.ranks:
        if event["rank"] == 0 and event["event"] == "resumed":
            last = event["step"]  # also within a generation: a rollback goes back on purpose
        if event["rank"] != 0 or event["event"] != "step":
            continue
        if event["generation"] != generation:
            before = (each["step"] for each in saves if each["generation"] < event["generation"])
            durable = max(before, default=0)
            if event["step"] <= durable:
                found.append(f"generation {event['generation']} began at step {event['step']}, {durable} was durable")
            generation, last = event["generation"], event["step"] - 1
        if event["step"] != last + 1:
            found.append(f"step {event['step']} followed step {last}")
        last = event["step"]
    return found


def _saved(history: DrillHistory, injection: Injection) -> tuple[int, bool]:
    """Step of the newest durable checkpoint before the injection, and whether the last save failed."""
    saves = [e for e in history.ranks if e["event"] in _SAVES and e["mono"] <= injection.mono]
    durable = max((e["step"] for e in saves if e["event"] == "saved"), default=0)
    return durable, bool(saves) and saves[-1]["event"] == "save_failed"


def _detection(history: DrillHistory, injection: Injection) -> Event | None:
    """First event that shows it: of the watchdog, the exit of the rank, its report as slow, a new size."""
    after = [event for event in history.keepers if event["mono"] > injection.mono]
    slow = [
        e for e in history.ranks if e["event"] == SLOW and e["slow"] == injection.rank and e["mono"] > injection.mono
    ]
    seen = [e for e in after if e["event"] in ("watchdog", "resized")]
    seen += [e for e in after if e["event"] == "rank_exited" and e["rank"] == injection.rank and e["code"]]
    seen += [e for e in after if e["event"] == "node_lost"]
    seen += [e for e in history.ranks if e["event"] == "non_finite" and e["mono"] > injection.mono]
    return min(slow + seen, key=lambda event: float(event["mono"]), default=None)


def _sentence(detected: Event, restarts: int) -> str:
    """Sentence on a detection, with the restarts charged unless the generation continues."""
    name, charged = detected["event"], f", {restarts} restart{'s' if restarts != 1 else ''} charged"
    sentence = {
        SLOW: lambda e: f"rank {e['slow']} is slow: {e['ratio']:.2f} x the others, in {e['phase']}",
        "non_finite": lambda e: f"step {e['step']} is not finite: {e['answer']}",
        "node_lost": lambda e: f"node {e['node']} is lost: {e['reason']}",
        "resized": lambda e: str(e["reason"]),
        "watchdog": lambda e: f"watchdog: {e['reason']}",
        "rank_exited": _exit_sentence,
    }[name](detected)
    return sentence if name in {SLOW, "non_finite"} else sentence + charged


def _exit_sentence(exited: Event) -> str:
    if signal := exited.get("signal"):
        return f"rank {exited['rank']} ended by signal {signal}, class same"
    return f"rank {exited['rank']} ended with {exited['code']}"


def _bad_saves(history: DrillHistory, injection: Injection) -> tuple[int, ...]:
    if injection.ends is None:
        return ()
    return tuple(sorted({e["step"] for e in history.ranks if e["event"] == "saved" and e["step"] > injection.step}))


def _events(home: Path, path: Path) -> list[Event]:
    lines = (read_below(home, path) or b"").split(b"\n")[:-1]
    return [event for event in map(read_event, lines) if event is not None and {"event", "mono"} <= event.keys()]


def _ordered(events: list[Event]) -> tuple[Event, ...]:
    return tuple(sorted(events, key=lambda event: float(event["mono"])))


@dataclass(frozen=True, kw_only=True, slots=True)
class Availability:
    """Effect of an outage of the store on a gang; seconds and steps of rank 0."""

    steps: int = 0
    """Steps finished during the fault."""
    usual_step: float | None = None
    """Median seconds of a step before it."""
    step_during: float | None = None
    """Median seconds of a step during it."""
    met_step: int | None = None
    """First step with a save during it; None if no save was due."""
    met_seconds: float | None = None
    failed: int = 0
    """Saves that the ranks reported as failed."""
    failed_seconds: float | None = None
    """Time from the injection to the first failure."""
    said: str = ""
    """Reason of the first failure."""
    durable_step: int | None = None
    """Step of the first durable save after the fault ended (of a slow store: after it began)."""
    durable_seconds: float | None = None
    """Seconds from then on."""
    gave_up: bool = False
    """A rank exited with 40, because no save succeeded for too long."""
    ended: bool = False
    """The gang has ended."""


def availability(history: DrillHistory, injection: Injection, *, slow: bool = False) -> Availability:
    """The effect of the outage `injection`; `slow` if the store only slowed down."""
    over = injection.mono + (injection.seconds or 0.0)
    during = history.steps(after=injection.mono, before=over)
    met = next((e for e in during if injection.saves_at(e["step"])), None)
    since = injection.mono if slow else over
    failed = history.of_rank_0("save_failed", after=injection.mono)
    saved = history.of_rank_0("saved", after=since)
    durable = next((e for e in saved if met is not None and e["step"] >= met["step"]), None)
    codes = (e["code"] for e in history.keepers if e["event"] == "rank_exited" and e["mono"] > injection.mono)
    return Availability(
        steps=len(during),
        usual_step=history.step_seconds(injection.generation, before=injection.mono),
        step_during=history.step_seconds(injection.generation, after=injection.mono, before=over),
        met_step=met["step"] if met else None,
        met_seconds=met["mono"] - injection.mono if met else None,
        failed=len(failed),
        failed_seconds=failed[0]["mono"] - injection.mono if failed else None,
        said=str(failed[0].get("reason", "")) if failed else "",
        durable_step=durable["step"] if durable else None,
        durable_seconds=durable["mono"] - since if durable else None,
        gave_up=StorageError.exit_code in codes,
        ended=any(e["event"] == "ended" for e in history.keepers),
    )


def describe_effect(effect: Availability) -> str:
    """One sentence: steps during the fault, failed saves, the first durable save."""
    failed = f", {effect.failed} save{'s' if effect.failed != 1 else ''} failed" if effect.failed else ""
    durable = f", then step {effect.durable_step} was durable" if effect.durable_step is not None else ""
    return f"{effect.steps} steps meanwhile{failed}{durable}"


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleCounts:
    """Samples of a training by fate."""

    lost: int = 0
    """Samples in no step that counts, though the training passed them and did not skip them on purpose."""
    twice: int = 0
    """Samples in two steps that count."""
    left_out: int = 0
    """Skipped on purpose, in a step that was not finite."""
    again: int = 0
    """Samples of steps that a later generation or a rollback repeated; they count once."""
    unknown: int = 0
    """Samples in steps before a checkpoint that no rank survived to report."""
    counted: bool = True
    """False: the steps report no samples, and whole batches are assumed."""


def count_samples(history: DrillHistory, *, batch: int) -> SampleCounts:
    """Count by the events of rank 0, with gaps from other ranks; `batch` samples for a step that reports none."""
    ranks = sorted({rank["rank"] for rank in history.ranks} - {0})
    first, *others = [[_with_span(e, batch) for e in history.ranks if e["rank"] == rank] for rank in (0, *ranks)]
    has_spans = all("span" in rank for rank in history.ranks if rank["rank"] == 0 and rank["event"] == "step")
    samples = summarize_training(lambda: [first], peers=others).samples or Samples(trained=0)
    return SampleCounts(
        lost=samples.lost, twice=samples.repeated, left_out=samples.skipped, again=samples.again,
        unknown=samples.unknown, counted=has_spans,
    )  # fmt: skip


def with_redone_steps(samples: SampleCounts, *, steps: int, batch: int) -> SampleCounts:
    """`samples` with at least `steps` times `batch` repeated, a number from the heartbeat.

    A rank writes events some steps late, so the last ones before a kill are in no file.
    """
    return replace(samples, again=max(samples.again, steps * batch))


def _with_span(event: Event, batch: int) -> Event:
    """The step with its samples; if it reports none, as if all steps took whole batches."""
    if event["event"] != "step":
        return event
    return {"span": [(event["step"] - 1) * batch, event["step"] * batch], **event}
