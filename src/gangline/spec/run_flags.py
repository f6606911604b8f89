"""Flags that set a run apart from its commit (experiment, dirty, drilled), read from its record. Pure."""

from gangline.spec.record import Record, StageInfo, StageState

FINAL: frozenset[StageState] = frozenset({"done", "taken", "skipped", "failed", "cancelled"})
GOOD: frozenset[StageState] = frozenset({"done", "taken", "skipped"})
UNDER_WAY = "under way"
"""Reason of a drill that has marked its run but not injected its fault yet."""


def was_drilled(record: Record) -> bool:
    """Whether a drill injected a fault, or is about to; a drill that injected none changed nothing."""
    return any(drill.result != "not_struck" or drill.reason == UNDER_WAY for drill in record.drills)


def is_experiment(record: Record) -> bool:
    """Were keys of the line set on the command line? Then it says nothing about its commit alone."""
    return bool(record.inputs.overrides)


SEARCH = "GANGLINE_SEARCH"
"""Variable in which a search gives its id to the drivers of its trials."""
TRIAL = "trial"
"""Kind of the event of a new record whose text is that id."""


def search_of(record: Record) -> str:
    """Id of the search that the run is a trial of; empty: it is none. A trial says nothing about its branch."""
    return next((event.text for event in record.events if event.kind == TRIAL), "")


def may_publish(record: Record) -> bool:
    """Whether commit and request let the run become a version; its gates and its line decide the rest."""
    return record.commit.trust == "own" and record.commit.protected and not flags_of(record)


def flags_of(record: Record) -> tuple[str, ...]:
    """`experiment`, `dirty`, `drilled`, as far as they hold: such a run is never a base and never published."""
    found = (
        ("experiment", is_experiment(record)),
        ("dirty", record.commit.patch is not None),
        ("drilled", was_drilled(record)),
    )
    return tuple(mark for mark, holds in found if holds)


def stopped_early(record: Record) -> bool:
    """Did its training end before its schedule, as the line asked? Fit to be measured, for nothing else."""
    return record.inputs.values.get("train.stop_at") is not None


def stage(record: Record, name: str) -> StageInfo:
    """State of a stage; one that the record lacks is waiting."""
    return record.stages.get(name, StageInfo())


def is_reported(record: Record) -> bool:
    """Whether it has ended and its report is made: nothing more will change."""
    return record.run.state == "ended" and stage(record, "report").state in FINAL


NOT_FINITE = "not_finite"
"""Output of the stages train and evaluate: metrics that are not finite, which a record cannot hold as numbers."""


def not_finite(record: Record) -> dict[str, str]:
    """Metrics that are not finite, by name; those of evaluate win."""
    return {
        **stage(record, "train").outputs.get(NOT_FINITE, {}),
        **stage(record, "evaluate").outputs.get(NOT_FINITE, {}),
    }


STEPS_TOLD = "steps_told"
"""Output of the train stage: whether the program reported a step, by its result or by heartbeats of all ranks."""


def reported_no_steps(record: Record) -> bool:
    """Whether the training succeeded although its program reported no step."""
    train = stage(record, "train")
    return train.state in ("done", "taken") and train.outputs.get(STEPS_TOLD) is False
