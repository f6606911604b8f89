"""Counts of samples around a fault (lost, taken twice, redone), from the positions that each step reports. Pure."""

from dataclasses import dataclass, replace

from gangline.drill.history import DrillHistory, Event
from gangline.line.results.training_summary import summarize_training
from gangline.spec.measurements import Samples


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
    ranks = sorted({each["rank"] for each in history.ranks} - {0})
    first, *others = [[_with_span(e, batch) for e in history.ranks if e["rank"] == rank] for rank in (0, *ranks)]
    has_spans = all("span" in each for each in history.ranks if each["rank"] == 0 and each["event"] == "step")
    found = summarize_training(lambda: [first], peers=others).samples or Samples(trained=0)
    return SampleCounts(
        lost=found.lost, twice=found.repeated, left_out=found.skipped, again=found.again, unknown=found.unknown,
        counted=has_spans,
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
