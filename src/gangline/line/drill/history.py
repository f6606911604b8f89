"""What ranks and keepers wrote around a strike, and what follows from it. Pure but for reading the gang's files.

All times are of the machine's monotonic clock, which the ranks, the keeper and the drill share.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Event = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """Events of one gang so far, in order of their time."""

    ranks: tuple[Event, ...] = ()
    keepers: tuple[Event, ...] = ()

    @staticmethod
    def read(home: Path) -> "History":
        """From a gang's folder; a line torn by a dying process is left out."""
        ranks = [event for path in sorted((home / "out" / "ranks").glob("*.jsonl")) for event in _events(path)]
        keepers = [event for path in sorted(home.glob("keeper-*.jsonl")) for event in _events(path)]
        return History(ranks=_ordered(ranks), keepers=_ordered(keepers))

    def steps(self, *, after: float = float("-inf"), before: float = float("inf")) -> list[Event]:
        """Steps that rank 0 finished in that time."""
        return [e for e in self.ranks if e["event"] == "step" and e["rank"] == 0 and after < e["mono"] <= before]


@dataclass(frozen=True, kw_only=True, slots=True)
class Strike:
    """A fault that was injected."""

    rank: int
    step: int
    """Last step that the rank had finished."""
    generation: int
    mono: float
    seconds: float | None = None
    """How long a lasting fault lasts."""


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
    lost_seconds: float | None = None
    """Until the training was past the step it had reached."""
    reached: int = 0
    """Last step before the strike."""
    durable: int = 0
    """Step of the newest checkpoint that was durable then."""
    saves_failed: bool = False
    """The last word on saves before the strike was a failure."""
    restarts: int = 0
    world_size: int | None = None
    breaks: tuple[str, ...] = field(default=())
    """Sentences on promises that these events break."""


def aftermath(history: History, strike: Strike) -> Aftermath:
    """Measure what followed `strike`.

    A killed gang comes back in a new generation. A stopped one may do so or go on: then the first step counts that the
    stopped rank cannot have had a share in before.
    """
    noticed = _noticed(history.keepers, strike)
    generations = [e for e in history.keepers if e["event"] == "generation_started" and e["mono"] > strike.mono]
    restarts = sum(e["event"] == "restart" and e["mono"] > strike.mono for e in history.keepers)
    reached = max((e["step"] for e in history.steps(before=strike.mono)), default=0)
    reached = max(reached, strike.step)
    anew = strike.seconds is None or bool(generations)
    new = [e for e in history.steps(after=strike.mono) if not anew or e["generation"] > strike.generation]
    past = next((e for e in new if e["step"] > (reached if anew else reached + 1)), None)
    first = new[0] if anew and new else past
    resumed = _resumed(history, strike) if anew else reached
    saves = [e for e in history.ranks if e["event"] in {"saved", "save_failed"} and e["mono"] <= strike.mono]
    return Aftermath(
        detect_seconds=noticed["mono"] - strike.mono if noticed else None,
        detected=_sentence(noticed, restarts) if noticed else "",
        recover_seconds=first["mono"] - strike.mono if first else None,
        new_step=first["step"] if first else None,
        checkpoint_step=resumed if anew and first else None,
        lost_steps=max(0, reached - resumed) if first else None,
        lost_seconds=past["mono"] - strike.mono if past else None,
        reached=reached,
        durable=max((e["step"] for e in saves if e["event"] == "saved"), default=0),
        saves_failed=bool(saves) and saves[-1]["event"] == "save_failed",
        restarts=restarts,
        world_size=generations[-1].get("world_size") if generations else None,
        breaks=tuple(went_back(history)),
    )


def went_back(history: History) -> list[str]:
    """Breaks of the promise that no generation starts below the last durable checkpoint (I5)."""
    found, durable, generation, last = [], 0, None, 0
    for event in history.ranks:
        if event["rank"] != 0:
            continue
        if event["event"] == "saved":
            durable = max(durable, event["step"])
        if event["event"] != "step":
            continue
        if event["generation"] != generation:
            if event["step"] <= durable:
                found.append(f"generation {event['generation']} began at step {event['step']}, {durable} was durable")
            generation, last = event["generation"], event["step"] - 1
        if event["step"] != last + 1:
            found.append(f"step {event['step']} followed step {last}")
        last = event["step"]
    return found


def _noticed(keepers: Sequence[Event], strike: Strike) -> Event | None:
    """First word of a keeper on it: the watchdog's, or the exit of the rank that was struck."""
    after = [event for event in keepers if event["mono"] > strike.mono]
    return next(
        (e for e in after if e["event"] == "watchdog" or (e["event"] == "rank_exited" and e["rank"] == strike.rank)),
        None,
    )


def _sentence(noticed: Event, restarts: int) -> str:
    charged = f"{restarts} restart{'s' if restarts != 1 else ''} charged"
    if noticed["event"] == "watchdog":
        return f"watchdog: {noticed['reason']}, {charged}"
    if signal := noticed.get("signal"):
        return f"rank {noticed['rank']} ended by signal {signal}, class same, {charged}"
    return f"rank {noticed['rank']} ended with {noticed['code']}, {charged}"


def _resumed(history: History, strike: Strike) -> int:
    """Step of the checkpoint that the next generation opened; 0: it began anew."""
    after = [e for e in history.ranks if e["event"] == "resumed" and e["rank"] == 0 and e["mono"] > strike.mono]
    return int(after[0]["step"]) if after else 0


def _events(path: Path) -> list[Event]:
    lines = path.read_bytes().split(b"\n")[:-1]
    parsed = (_parse(line) for line in lines)
    return [event for event in parsed if event is not None]


def _parse(line: bytes) -> Event | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and {"event", "mono"} <= event.keys() else None


def _ordered(events: list[Event]) -> tuple[Event, ...]:
    return tuple(sorted(events, key=lambda event: float(event["mono"])))
