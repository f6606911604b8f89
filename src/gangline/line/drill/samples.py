"""What became of the samples around a strike, counted from the positions that each step says it took. Pure."""

from dataclasses import dataclass

from gangline.line.drill.history import Event, History
from gangline.line.training import follow
from gangline.spec.record import Samples as Fate


@dataclass(frozen=True, kw_only=True, slots=True)
class Samples:
    lost: int = 0
    """In no step that counts, though the training went past them and nobody left them out on purpose."""
    twice: int = 0
    """In two steps that count."""
    left_out: int = 0
    """On purpose: of a step that was not finite."""
    again: int = 0
    """Of steps that a later generation, or a rollback, did again: they count once."""
    counted: bool = True
    """The steps said which samples they took; else these are steps, taken for whole batches."""


def count(history: History, *, batch: int) -> Samples:
    """Of the training as rank 0 tells it; `batch` samples a step where the steps do not say."""
    events = [each for each in history.ranks if each["rank"] == 0]
    told = all("span" in each for each in events if each["event"] == "step")
    found = follow([[_with_span(each, batch) for each in events]]).samples or Fate(trained=0)
    return Samples(lost=found.lost, twice=found.repeated, left_out=found.skipped, again=found.again, counted=told)


def _with_span(event: Event, batch: int) -> Event:
    """A step that does not say what it took stands as if all before it had taken whole batches."""
    if event["event"] != "step":
        return event
    return {"span": [(event["step"] - 1) * batch, event["step"] * batch], **event}
