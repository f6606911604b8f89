"""Files of a program: outputs that its gang collects, and the modules and files that its ranks report as read.

Ranks report the latter themselves, so it is evidence and no proof.
"""

from dataclasses import dataclass, field

from gangline.spec.codec import Document

OUTPUT_KIND = "output"
"""Kind of a file that the program wrote."""
SAVE_KIND = "save"
"""Kind of the artifact that is the manifest of a program's newest save."""
SAVED_PATHS = "paths.json"
"""Name in a save of the file that has the paths of files whose name in it is a number."""
OUTPUTS_KIND = "outputs"
"""Kind of the artifact that is the list."""
OUTPUTS = "outputs.json"
"""Name of the list, in the store and in the gang's folder once it is in the store."""
FOLDER = "outputs"
OUTPUTS_VARIABLE = "GANGLINE_OUTPUTS"
"""Variable of a gang that is asked to collect: `OutputsRequest` as JSON."""
IGNORED_FOLDER = "__pycache__"
"""Folder that no program means."""
MOST_OMITTED_LISTED = 100
"""Files that were left out and are named."""
MOST_METRICS_BYTES = 16 << 20
"""Largest file of the program's numbers: 100,000 lines of 150 bytes."""
MOST_WRITERS = 64
"""Ranks that are named as writers of that file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputsRequest(Document):
    """What is to be collected from the folder that rank 0 started in."""

    globs: tuple[str, ...] = ()
    metrics: str | None = None
    """File with the program's numbers, whatever the globs say."""
    code: str
    """Blob of the code layer: a file of it that was not changed is not an output."""
    most_files: int
    most_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputFile:
    """One file, in the store as `outputs/<sha256>` next to the list."""

    path: str
    """Relative to the folder that ranks started in."""
    size_bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class OmittedFile:
    """A file that a glob names and that was not collected."""

    path: str
    reason: str
    is_lost: bool = True
    """False: a link or a pipe, which has no content of its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outputs(Document):
    """All that was collected of one gang, at its end."""

    schema: int = 1
    gang: str
    files: tuple[OutputFile, ...] = ()
    """Sorted by path."""
    left_out: tuple[OmittedFile, ...] = ()
    """The first `MOST_OMITTED_LISTED` of them."""
    num_left_out: int = 0
    refused: str = ""
    """Why nothing was collected: more than the site allows."""
    metrics: OutputFile | None = None
    """The metrics file; None: none was asked for, or the program wrote none."""
    metrics_writers: tuple[int, ...] = ()
    """Ranks that wrote it, as far as they are Python programs; at most `MOST_WRITERS`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedModule:
    """A module whose file is of no known place."""

    name: str
    file: str


@dataclass(frozen=True, kw_only=True, slots=True)
class UndeclaredRead:
    """A file that was opened for reading, and that neither the line nor the commit nor the environment holds.

    It is described as it was when a rank opened it first. A folder whose names were listed is described alike: its
    path ends with a slash, its size is the number of names, its digest one of the sorted names.
    """

    path: str
    size_bytes: int
    mtime_ns: int = 0
    ctime_ns: int = 0
    """Time of the last change, which no program can set; 0: the record is older than these fields."""
    sha256: str = ""
    """Digest of a file up to 4 MiB; empty: it is larger, or changed while it was opened."""
    changed: bool = False
    """It was another one when a second process opened it, or when the ranks had ended."""
    left: bool = False
    """An earlier run left it in a home that is kept on this machine."""

    def is_same(self, other: "UndeclaredRead") -> bool | None:
        """Whether both describe one content; None: not known."""
        if self.sha256 and other.sha256:
            return self.sha256 == other.sha256
        if self.size_bytes != other.size_bytes:
            return False
        is_timed = self.ctime_ns != 0
        return True if is_timed and (self.mtime_ns, self.ctime_ns) == (other.mtime_ns, other.ctime_ns) else None


@dataclass(frozen=True, kw_only=True, slots=True)
class RuntimeReport:
    """Reported by the first rank of each node, and by the Python processes that it started."""

    python: str = ""
    """Version of the interpreter; of several the one that ran code of the commit and loaded most."""
    prefix: str = ""
    """Its environment."""
    foreign: tuple[str, ...] = ()
    """`Python 3.12.1 of /opt/env`: other environments than the gang's that ran code of the commit; at most 5."""
    packages: dict[str, str] = field(default_factory=dict)
    """Version by name, of those that were imported by that interpreter."""
    modules: dict[str, int] = field(default_factory=dict)
    """How many, by where their files are: `code` layer, `environment` of the rank, `standard` library, `gangline`,
    `compiled` into the interpreter, `elsewhere`; of the process that loaded most."""
    elsewhere: tuple[LoadedModule, ...] = ()
    """Modules that are elsewhere; at most 50."""
    reads: tuple[UndeclaredRead, ...] = ()
    """Files that were read and that nothing declares; at most 100."""
    num_reads: int = 0
    """Number of such files; more than `reads` where there were many."""
    listed: tuple[UndeclaredRead, ...] = ()
    """Folders whose names were listed and that nothing declares; at most 50."""
    num_listed: int = 0
    """Number of such folders; more than `listed` where there were many."""
    hosts: tuple[str, ...] = ()
    """Names of other machines that were looked up; at most 20."""
    programs: tuple[str, ...] = ()
    """Names of programs that were started and that do not report what they read; at most 20."""
    unseen: tuple[str, ...] = ()
    """Why some of what they read was not examined; at most 5."""
    searches: tuple[str, ...] = ()
    """Patterns, and folders that are not there, that were looked for in the code layer; at most 20."""
    gpus: tuple[str, ...] = ()
    """Kinds that they used, as the driver calls them; at most 8. Empty: none, or not known."""
    ranks: tuple[int, ...] = ()
    """Who reported it."""
    is_whole: bool = False
    """The report covers the whole run of the rank; else a killed rank left what it had reported before."""
