"""What a program wrote: what its gang is asked to collect, and the list that it leaves of what it collected.

    runs/.../gang/outputs.json                 `Outputs`, last: without it nothing was collected
                  outputs/<sha256>             each file, by its content

Whoever reads the list trusts nothing in it. Standard library alone: a keeper reads what it is asked.
"""

from dataclasses import dataclass

from gangline.spec.codec import Document

OUTPUTS = "outputs.json"
"""Name of the list, in the store and in the gang's folder once it is in the store."""
FOLDER = "outputs"
ASKED = "GANGLINE_OUTPUTS"
"""Variable of a gang that is asked to collect: `OutputsAsked` as JSON."""
NEVER = "__pycache__"
"""Folder that no program means."""
MOST_TOLD = 100
"""Files that were left out and are named."""
MOST_METRICS_BYTES = 16 << 20
"""Of the file with the program's numbers: 100,000 lines of 150 bytes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputsAsked(Document):
    """What is to be collected from the folder that rank 0 started in."""

    globs: tuple[str, ...] = ()
    metrics: str | None = None
    """File with the program's numbers, whatever the globs say."""
    code: str
    """Blob of the code layer: a file that it holds and nobody changed is no output."""
    most_files: int
    most_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputFile:
    """One file, in the store as `outputs/<sha256>` beside the list."""

    path: str
    """Relative to the folder that ranks started in."""
    size_bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftOut:
    """A file that a glob names and that was not collected."""

    path: str
    reason: str
    is_lost: bool = True
    """False: a link, a pipe, which is no content of its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outputs(Document):
    """All that was collected of one gang, at its end."""

    schema: int = 1
    gang: str
    files: tuple[OutputFile, ...] = ()
    """Sorted by path."""
    left_out: tuple[LeftOut, ...] = ()
    """At most `MOST_TOLD`."""
    num_left_out: int = 0
    refused: str = ""
    """Why nothing was collected: more than the site allows."""
    metrics: OutputFile | None = None
    """The metrics file; None: none was asked for, or the program wrote none."""
