"""`config`: the one string a pipeline is given beside the run id. It says where the run's stages find their things.

Numbers inside lists and dictionaries become floats between tasks, and quotes end conditions: a string of JSON passes.
It holds references to secrets and never a secret.
"""

from dataclasses import dataclass

from gangline.spec.codec import canonical, from_json
from gangline.spec.site import Site

LEASE_PATIENCE_SECONDS = 150.0
"""A task that is retried elsewhere waits until the lease of the lost one (90 s) has ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskConfig:
    """What a component needs to know beside its run."""

    schema: int = 1
    site: Site
    repo: str | None = None
    """Folder of the line on this machine; None: the task unpacks `history`."""
    history: str | None = None
    """Key of the commits that a task without a repository looks back at."""
    folder: str = "."
    """Where line.toml lies inside `history`."""
    told: str | None = None
    """Folder where tasks tell the local driver what happens."""
    url: str | None = None
    """Page of the pipeline run, for the record."""
    patience_seconds: float = LEASE_PATIENCE_SECONDS
    """Longest wait for another driver of the run."""

    def to_text(self) -> str:
        return canonical(self).decode()

    @staticmethod
    def from_text(text: str) -> "TaskConfig":
        """Raises IntegrityError, naming the field."""
        return from_json(TaskConfig, text)
