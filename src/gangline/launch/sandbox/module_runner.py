"""Contract for running one module of gangline with the code of a commit, separated from everything else.

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
    """Folders of the code layer that are added to the Python path."""
    files: Mapping[str, bytes | Path] = field(default_factory=dict)
    """Files at `../NAME`: content, or the path of a large file or folder on this machine."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that the line sets; without secrets."""
    seconds: float
    """Time limit, after which it is killed."""
    trust: Trust
    """Trust in the commit of the code."""
    python: str | None = None
    """Python interpreter of the commit, if it runs on this machine; None: that of gangline."""
    site_python: bool = False
    """`python` is an environment that the site names, not one that was made for the commit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModuleResult:
    """Exit code and output of a module."""

    exit_code: int | None
    """None: it was killed at its time limit."""
    stdout: bytes
    stderr: bytes

    @property
    def output_tail(self) -> str:
        """Last line of stderr, or the exit code."""
        lines = self.stderr.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit {self.exit_code}"


class ModuleRunner(Protocol):
    """Runs modules with the code of a commit, separated from everything else."""

    def run(self, job: ModuleJob) -> ModuleResult:
        """Run `job` to its end or its time limit; no process of it is left.

        Raises:
            IntegrityError: Code of this trust does not run here, as there is no sandbox.
            StorageError: It could not be started.
            CapacityError: There is no room for it now.
            ConfigError: Something that it needs is not configured.
        """
        ...
