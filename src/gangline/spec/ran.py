"""What ran, as ranks tell of themselves: beside what the driver knows, not instead of it. A rank may lie."""

from dataclasses import dataclass, field
from typing import Literal

Origin = Literal["code", "environment", "standard", "gangline", "elsewhere"]
"""Where the file of a module lies: code layer, the rank's packages, Python's own, the runtime, anywhere else."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedModule:
    """A module whose file is of no known place."""

    name: str
    file: str


@dataclass(frozen=True, kw_only=True, slots=True)
class UndeclaredRead:
    """A file that was opened for reading, and that neither the line nor the commit nor the environment holds."""

    path: str
    size_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
    """Told by the first rank of each node, and by the Python processes that it started."""

    python: str = ""
    """Version of the interpreter."""
    prefix: str = ""
    """Its environment."""
    packages: dict[str, str] = field(default_factory=dict)
    """Version by name, of those that were imported."""
    modules: dict[str, int] = field(default_factory=dict)
    """How many, by `Origin`; of the process that loaded most."""
    elsewhere: tuple[LoadedModule, ...] = ()
    """At most 50."""
    reads: tuple[UndeclaredRead, ...] = ()
    """At most 100."""
    num_reads: int = 0
    """Of such files; more than `reads` where there were many."""
    hosts: tuple[str, ...] = ()
    """Names of other machines that were looked up; at most 20."""
    programs: tuple[str, ...] = ()
    """Names of programs that were started and that do not report what they read; at most 20."""
    ranks: tuple[int, ...] = ()
    """Who told."""
    is_whole: bool = False
    """Somebody told until its end; else a killed rank left what it had told before."""
