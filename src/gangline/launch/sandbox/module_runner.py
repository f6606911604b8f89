"""Contract for running one module of gangline apart from everything else, with the code of a commit.

Arguments and result are plain data, so that a process of this machine and a pod of a cluster implement it alike.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from gangline.spec.record import Trust


@dataclass(frozen=True, kw_only=True, slots=True)
class ModuleJob:
    """One module, started as `python -m MODULE ARGUMENTS...` in the folder of the code layer."""

    module: str
    arguments: tuple[str, ...] = ()
    code: bytes | None = None
    """Code layer; None: an empty folder."""
    path: tuple[str, ...] = ()
    """Folders of it that are on the path, too."""
    files: Mapping[str, bytes | Path] = field(default_factory=dict)
    """Read as `../NAME`: small ones as they are, large files and folders of this machine by their path."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that the line sets; no secrets."""
    seconds: float
    """It is ended then."""
    trust: Trust
    """Whose commit the code is of."""
    python: str | None = None
    """The commit's own interpreter, where it runs on this machine; None: that of gangline."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModuleResult:
    """How it went."""

    exit_code: int | None
    """None: its time was up."""
    stdout: bytes
    stderr: bytes

    @property
    def last_words(self) -> str:
        """The last line of what it said, or its code."""
        lines = self.stderr.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit {self.exit_code}"


class ModuleRunner(Protocol):
    def run(self, job: ModuleJob) -> ModuleResult:
        """Run `job` to its end, or to the end of its time; nothing of it is left.

        Raises:
            IntegrityError: Code of such a commit does not run here: there is nothing that keeps it apart.
            StorageError: It could not be started.
            CapacityError: There is no room for it now.
            ConfigError: Something that it needs is not set up.
        """
        ...
