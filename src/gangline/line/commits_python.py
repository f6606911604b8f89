"""The interpreter that a run's build stage made of its lock, as later stages find it on this machine."""

from pathlib import Path

from gangline.errors import ConfigError
from gangline.line.states import stage
from gangline.spec.record import Record


def commits_python(record: Record) -> str | None:
    """None: the run has no environment of its own here.

    Raises:
        ConfigError: It was deleted since, by a sweep for instance, or was made on another machine.
    """
    python = stage(record, "build").outputs.get("python")
    if python is not None and not Path(python).exists():
        raise ConfigError(
            f"wanted the environment of {record.run.id} at {Path(python).parent.parent}, found none: a sweep"
            " deleted it, or another machine has it; gangline run --again makes it anew"
        )
    return None if python is None else str(python)
