"""Counts of samples around a fault (lost, taken twice, redone), from the positions that each step reports. Pure."""

from dataclasses import dataclass, replace

from gangline.drill.history import DrillHistory, Event
from gangline.line.results.training_summary import summarize_training
from gangline.spec.measurements import Samples as Fate


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleCounts:
    lost: int = 0
    """In no step that counts, though the training went past them and nobody left them out on purpose."""
    twice: int = 0
    """In two steps that count."""
    left_out: int = 0
    """On purpose: of a step that was not finite."""
    again: int = 0
    """Of steps that a later generation, or a rollback, did again: they count once."""
    unknown: int = 0
    """In steps that a checkpoint stands behind, and no rank lived to tell."""
    counted: bool = True
    """The steps said which samples they took; else these are steps, taken for whole batches."""


def count_samples(history: DrillHistory, *, batch: int) -> SampleCounts:
    """Of the training as rank 0 tells it, or others where it could not; `batch` samples where a step does not say."""
    ranks = sorted({each["rank"] for each in history.ranks} - {0})
    first, *others = [[_with_span(e, batch) for e in history.ranks if e["rank"] == rank] for rank in (0, *ranks)]
    told = all("span" in each for each in history.ranks if each["rank"] == 0 and each["event"] == "step")
    found = summarize_training(lambda: [first], peers=others).samples or Fate(trained=0)
    return SampleCounts(
        lost=found.lost, twice=found.repeated, left_out=found.skipped, again=found.again, unknown=found.unknown,
        counted=told,
    )  # fmt: skip


def with_redone_steps(samples: SampleCounts, *, steps: int, batch: int) -> SampleCounts:
    """`samples`, of which at least `steps` of `batch` were done again, by the heartbeat.

    A rank writes events some steps after they happened: the last ones before a kill are in no file.
    """
    return replace(samples, again=max(samples.again, steps * batch))


def _with_span(event: Event, batch: int) -> Event:
    """A step that does not say what it took stands as if all before it had taken whole batches."""
    if event["event"] != "step":
        return event
    return {"span": [(event["step"] - 1) * batch, event["step"] * batch], **event}
