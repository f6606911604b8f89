"""Events of ranks and keepers around a fault, and what follows from them. Pure except for reading the gang's files."""

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from gangline.spec.gang.status import read_event
from gangline.spec.record import SLOW
from gangline.storage.folder.safe_paths import read_below

Event = dict[str, Any]
_SAVES = ("saved", "save_failed")


@dataclass(frozen=True, kw_only=True, slots=True)
class DrillHistory:
    """Events of one gang so far, in order of their time."""

    ranks: tuple[Event, ...] = ()
    keepers: tuple[Event, ...] = ()

    @staticmethod
    def read(home: Path) -> "DrillHistory":
        """From what a gang wrote below `home`; a line torn by a dying process is left out."""
        ranks = [event for path in sorted((home / "out" / "ranks").glob("*.jsonl")) for event in _events(home, path)]
        keepers = [event for path in sorted(home.glob("keeper-*.jsonl")) for event in _events(home, path)]
        return DrillHistory(ranks=_ordered(ranks), keepers=_ordered(keepers))

    def steps(self, *, after: float = float("-inf"), before: float = float("inf")) -> list[Event]:
        """Steps that rank 0 finished in that time."""
        return [e for e in self.ranks if e["event"] == "step" and e["rank"] == 0 and after < e["mono"] <= before]


@dataclass(frozen=True, kw_only=True, slots=True)
class Injection:
    """A fault that was injected."""

    rank: int
    step: int
    """Last step that the rank had finished."""
    generation: int
    mono: float
    seconds: float | None = None
    """How long a lasting fault lasts."""
    ranks: int = 0
    """World size that it asked for; 0: none."""
    stays: bool = False
    """No new generation is to follow: this one goes on, or the gang ends."""
    ends: int | None = None
    """Exit code that the gang is to end with; None: the training goes on."""
    every: int = 0
    """Steps between checkpoints; 0: unknown."""
    steps: int = 0
    """Of the whole training; 0: unknown."""
    patience: float = float("inf")
    """Seconds that saves may go on failing before the ranks give up."""

    def saves_at(self, step: int) -> bool:
        """Is a checkpoint due after `step`?"""
        return bool(self.every) and (step % self.every == 0 or step == self.steps)


@dataclass(frozen=True, kw_only=True, slots=True)
class Aftermath:
    """What the events say happened after a strike; None: not yet, or never."""

    detect_seconds: float | None = None
    detected: str = ""
    """Sentence of who noticed what."""
    recover_seconds: float | None = None
    new_step: int | None = None
    """First step that was finished after the strike: in a new generation, where one was started."""
    checkpoint_step: int | None = None
    """Where the new generation resumed; 0: from the beginning."""
    lost_steps: int | None = None
    went_on_to: int | None = None
    """Last step after the strike, where a generation that was to end went on as if nothing had been asked."""
    lost_seconds: float | None = None
    """Until the training was past the step it had reached."""
    reached: int = 0
    """Last step before the strike."""
    durable: int = 0
    """Step of the newest checkpoint that was durable then."""
    saves_failed: bool = False
    """The last word on saves before the strike was a failure."""
    saves: bool = True
    """The program saved, or tried to, at any time."""
    restarts: int = 0
    charged: int = 0
    """Of these, how many the restart budget paid for."""
    usual_step: float | None = None
    """Median seconds of a step before the strike."""
    source: str = ""
    """Where the new generation opened its checkpoint: `copy` in the memory of nodes, or `store`."""
    exit_code: int | None = None
    """That the gang ended with."""
    answer: str = ""
    """What became of the step that was not finite."""
    bad_saves: tuple[int, ...] = ()
    """Steps saved that a gang which was to end there must not have saved."""
    world_size: int | None = None
    breaks: tuple[str, ...] = field(default=())
    """Sentences on promises that these events break."""


def aftermath(history: DrillHistory, strike: Injection) -> Aftermath:
    """Measure what followed `strike`.

    A killed gang comes back in a new generation. A stopped one may do so or go on: then the first step counts that was
    finished once the stop was over.
    """
    noticed = _detection(history, strike)
    generations = [e for e in history.keepers if e["event"] == "generation_started" and e["mono"] > strike.mono]
    restarts = [e for e in history.keepers if e["event"] == "restart" and e["mono"] > strike.mono]
    charged = sum(bool(e.get("charged")) for e in restarts)
    reached = max([strike.step, *(e["step"] for e in history.steps(before=strike.mono))])
    anew = bool(generations) or (strike.seconds is None and not strike.stays)
    back = _resumed_events(history, strike)
    new = [e for e in history.steps(after=strike.mono) if not anew or e["generation"] > strike.generation]
    over = strike.mono + (0.0 if anew else strike.seconds or 0.0)
    past = next((e for e in new if e["step"] > reached and e["mono"] > over), None)
    goes_back = anew or bool(back)
    first = new[0] if goes_back and new else past
    resumed = int(back[0]["step"]) if back else 0 if anew else reached
    durable, saves_failed = _saved(history, strike)
    ended = next((e["exit_code"] for e in history.keepers if e["event"] == "ended" and e["mono"] > strike.mono), None)
    if strike.ends is not None:
        first, past, resumed = None, None, _last_saved(history)
    return Aftermath(
        detect_seconds=noticed["mono"] - strike.mono if noticed else None,
        detected=_sentence(noticed, charged) if noticed else "",
        recover_seconds=first["mono"] - strike.mono if first else None,
        new_step=first["step"] if first else None,
        checkpoint_step=resumed if goes_back and first else None,
        lost_steps=max(0, reached - resumed) if first or (strike.ends is not None and ended is not None) else None,
        lost_seconds=past["mono"] - strike.mono if past else None,
        went_on_to=_first_new_step(history, strike, reached) if anew and not generations and not restarts else None,
        reached=reached,
        durable=durable,
        saves_failed=saves_failed,
        saves=any(e["event"] in _SAVES for e in history.ranks),
        restarts=len(restarts),
        charged=charged,
        usual_step=_usual_step(history, strike),
        source=str(back[0].get("source", "")) if back else "",
        exit_code=ended,
        answer=_answer(history, strike),
        bad_saves=_bad_saves(history, strike),
        world_size=generations[-1].get("world_size") if generations else None,
        breaks=tuple(steps_backwards(history)),
    )


def _first_new_step(history: DrillHistory, strike: Injection, reached: int) -> int | None:
    same = (e["step"] for e in history.steps(after=strike.mono) if e["generation"] == strike.generation)
    last = max(same, default=reached)
    return last if last > reached else None


def steps_backwards(history: DrillHistory) -> list[str]:
    """Breaks of the promise that no generation starts below the last durable checkpoint (I5)."""
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


def _usual_step(history: DrillHistory, strike: Injection) -> float | None:
    times = [e["mono"] for e in history.steps(before=strike.mono) if e["generation"] == strike.generation]
    return median(later - earlier for earlier, later in pairwise(times)) if len(times) > 1 else None


def _saved(history: DrillHistory, strike: Injection) -> tuple[int, bool]:
    """Step of the newest durable checkpoint before the strike, and whether the last word on saves was a failure."""
    saves = [e for e in history.ranks if e["event"] in _SAVES and e["mono"] <= strike.mono]
    durable = max((e["step"] for e in saves if e["event"] == "saved"), default=0)
    return durable, bool(saves) and saves[-1]["event"] == "save_failed"


def _detection(history: DrillHistory, strike: Injection) -> Event | None:
    """First word on it: the watchdog's, the exit of the rank that was struck, its name as a slow one, a new size."""
    after = [event for event in history.keepers if event["mono"] > strike.mono]
    slow = [e for e in history.ranks if e["event"] == SLOW and e["slow"] == strike.rank and e["mono"] > strike.mono]
    seen = [e for e in after if e["event"] in ("watchdog", "resized")]
    seen += [e for e in after if e["event"] == "rank_exited" and e["rank"] == strike.rank and e["code"]]
    seen += [e for e in after if e["event"] == "node_lost"]
    seen += [e for e in history.ranks if e["event"] == "non_finite" and e["mono"] > strike.mono]
    return min(slow + seen, key=lambda event: float(event["mono"]), default=None)


def _sentence(noticed: Event, restarts: int) -> str:
    """Who noticed what; with what it was charged, unless the same generation lives through it."""
    name, charged = noticed["event"], f", {restarts} restart{'s' if restarts != 1 else ''} charged"
    said = {
        SLOW: lambda e: f"rank {e['slow']} is slow: {e['ratio']:.2f} x the others, in {e['phase']}",
        "non_finite": lambda e: f"step {e['step']} is not finite: {e['answer']}",
        "node_lost": lambda e: f"node {e['node']} is lost: {e['reason']}",
        "resized": lambda e: str(e["reason"]),
        "watchdog": lambda e: f"watchdog: {e['reason']}",
        "rank_exited": _exit_sentence,
    }[name](noticed)
    return said if name in {SLOW, "non_finite"} else said + charged


def _exit_sentence(exited: Event) -> str:
    if signal := exited.get("signal"):
        return f"rank {exited['rank']} ended by signal {signal}, class same"
    return f"rank {exited['rank']} ended with {exited['code']}"


def _resumed_events(history: DrillHistory, strike: Injection) -> list[Event]:
    """Of checkpoints that were opened after the strike, by a new generation or by a rollback."""
    return [e for e in history.ranks if e["event"] == "resumed" and e["rank"] == 0 and e["mono"] > strike.mono]


def _last_saved(history: DrillHistory) -> int:
    return max((e["step"] for e in history.ranks if e["event"] == "saved"), default=0)


def _answer(history: DrillHistory, strike: Injection) -> str:
    found = (e["answer"] for e in history.ranks if e["event"] == "non_finite" and e["mono"] > strike.mono)
    return str(next(found, ""))


def _bad_saves(history: DrillHistory, strike: Injection) -> tuple[int, ...]:
    if strike.ends is None:
        return ()
    return tuple(sorted({e["step"] for e in history.ranks if e["event"] == "saved" and e["step"] > strike.step}))


def _events(home: Path, path: Path) -> list[Event]:
    lines = (read_below(home, path) or b"").split(b"\n")[:-1]
    return [event for event in map(read_event, lines) if event is not None and {"event", "mono"} <= event.keys()]


def _ordered(events: list[Event]) -> tuple[Event, ...]:
    return tuple(sorted(events, key=lambda event: float(event["mono"])))
