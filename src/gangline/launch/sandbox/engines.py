"""The ways in which a machine keeps model code from everything else, best first: how each starts a program."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gangline.launch.sandbox.host_paths import devices
from gangline.launch.sandbox.view import SandboxView, temporary_folders

UIDS: Mapping[bool, int] = {True: 65532, False: 65533}
"""Whom model code runs as where this process is root, by its view: own commits as the user of our images, and forks as
another one, who reaches no file, key or process of theirs."""
INFO_FD = 3
"""Where a command whose process is started by another one tells its number."""
WHAT_WORKS = "apt install bubblewrap"
_TOOLS = "/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin:/run/current-system/sw/bin"


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxCommand:
    """A program as it is really started."""

    argv: tuple[str, ...]
    environ: Mapping[str, str]
    cwd: Path = Path("/")
    tells_pid: bool = False
    """It writes `{"child-pid": ...}` to INFO_FD: the program is that process, not the one that was started."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxProgram:
    """A program of model code, and how long it lives."""

    argv: tuple[str, ...]
    environ: Mapping[str, str]
    cwd: Path
    with_parent: bool
    """It ends with the process that starts it."""
    is_init: bool = False
    """It is process 1 where it has processes of its own: it buries orphans."""


class SandboxEngine(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def uid(self) -> int | None:
        """Owner of what the program may write; None: this user."""
        ...

    @property
    def hides(self) -> bool:
        """Files, processes and other gangs; it has a `/tmp` of its own."""
        ...

    @property
    def text(self) -> str:
        """What it does, for people."""
        ...

    @property
    def gaps(self) -> str:
        """What it does not hide."""
        ...

    def command(self, program: SandboxProgram, view: SandboxView) -> SandboxCommand: ...


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """Mounts, processes and, for forks, a network of its own."""

    path: str
    uid: int | None
    name: str = "bubblewrap"
    hides: bool = True
    gaps: str = "own commits see the machine's other folders read-only, and its network"

    @property
    def text(self) -> str:
        who = "in a user namespace" if self.uid is None else f"as uid {self.uid}"
        return f"bubblewrap {who}: files, processes and environment of its own"

    def command(self, program: SandboxProgram, view: SandboxView) -> SandboxCommand:
        argv = [self.path, "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
        argv += ["--unshare-user"] if self.uid is None else []
        argv += [] if view.network else ["--unshare-net"]
        argv += ["--die-with-parent", "--new-session"] if program.with_parent else []
        argv += ["--as-pid-1", "--info-fd", str(INFO_FD)] if program.is_init else []
        argv += [*mounts(view), "--chdir", str(program.cwd), "--"]
        other = [] if self.uid is None else another_user(self.uid, with_parent=program.with_parent)
        return SandboxCommand(argv=(*argv, *other, *with_environ(program)), environ=CLEAN, tells_pid=program.is_init)


@dataclass(frozen=True, slots=True)
class OtherUser:
    """Another uid with an environment of its own: files that are closed to others stay closed."""

    uid: int
    name: str = "user"
    hides: bool = False
    gaps: str = (
        "model code sees every file that all users may read, other processes' command lines, the network, and gangs of"
        f" other own commits, or of other forks; {WHAT_WORKS} hides them"
    )

    @property
    def text(self) -> str:
        return f"uid {self.uid}: environment and home of its own"

    def command(self, program: SandboxProgram, view: SandboxView) -> SandboxCommand:
        del view
        other = another_user(self.uid, with_parent=program.with_parent)
        enter = [_tool("env"), f"--chdir={program.cwd}"]
        return SandboxCommand(argv=(*other, *enter, *with_environ(program)), environ=CLEAN)


@dataclass(frozen=True, slots=True)
class Unconfined:
    """No sandbox: model code is the user's own program."""

    why: str
    uid: int | None = None
    name: str = "none"
    hides: bool = False
    gaps: str = "model code runs as this user and may read whatever this user may"

    @property
    def text(self) -> str:
        return f"none: {self.why}"

    def command(self, program: SandboxProgram, view: SandboxView) -> SandboxCommand:
        del view
        return SandboxCommand(argv=program.argv, environ=program.environ, cwd=program.cwd)


CLEAN = {"PATH": _TOOLS, "LANG": "C.UTF-8"}
"""All that programs of ours outside and on the way in see: what a line sets, LD_PRELOAD say, begins inside."""


def mounts(view: SandboxView) -> list[str]:
    """Options of bwrap that make `view`, in order: of two mounts at one place the later one counts."""
    argv = ["--ro-bind", "/", "/"] if view.wide else []
    argv += ["--dev", "/dev", "--perms", "1777", "--tmpfs", "/dev/shm", "--proc", "/proc"]  # noqa: S108  # workers share memory
    argv += [word for path in devices() for word in ("--dev-bind-try", str(path), str(path))]
    covers, temporary = [] if view.wide else [Path("/")], temporary_folders()
    for path, kind in view.entries():
        argv += _way_to(path, [*covers, *temporary])
        if path in temporary:
            argv += ["--bind", str(view.tmp), str(path)]
        elif kind != "hide":
            argv += ["--ro-bind" if kind == "read" else "--bind", str(path), str(path)]
        elif path.is_dir():
            argv += ["--tmpfs", str(path)]
            covers.append(path)
        else:
            argv += ["--ro-bind", "/dev/null", str(path)]
    argv += [word for path in view.empty for word in (*_way_to(path, covers), "--dir", str(path))]
    return argv + [word for path in reversed(covers) for word in ("--remount-ro", str(path))]


def _way_to(path: Path, covers: Sequence[Path]) -> list[str]:
    """Folders between the deepest of `covers` and `path`: bwrap makes those that are missing, but closed to others."""
    above = list(reversed(path.parents))
    deepest = max((number for number, each in enumerate(above) if each in covers), default=len(above))
    return [word for each in above[deepest + 1 :] for word in ("--dir", str(each))]


def another_user(uid: int, *, with_parent: bool) -> list[str]:
    """The words before a program that give up root for good."""
    argv = [_tool("setpriv"), "--reuid", str(uid), "--regid", str(uid), "--clear-groups", "--no-new-privs"]
    argv += ["--bounding-set=-all", "--inh-caps=-all"]
    return [*argv, "--pdeathsig", "KILL"] if with_parent else argv


def with_environ(program: SandboxProgram) -> list[str]:
    """The program with its environment and no other, set where nothing of ours runs any more."""
    return [_tool("env"), "-i", *(f"{name}={value}" for name, value in program.environ.items()), *program.argv]


def _tool(name: str) -> str:
    """By an absolute path: a search would begin in a folder of whoever is driven."""
    return shutil.which(name, path=_TOOLS) or f"/usr/bin/{name}"
