"""Sandbox engines, the strongest first: how each starts a program of model code, and which works on this machine."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from gangline.launch.sandbox.environment import model_environ
from gangline.launch.sandbox.host_paths import devices, hidden_paths, is_reachable, python_paths, system_paths
from gangline.launch.sandbox.view import SandboxView, temporary_folders

UIDS: Mapping[bool, int] = {True: 65532, False: 65533}
"""Uid of model code if this process is root, by `SandboxView.wide`: own commits run as the user of gangline's images,
forks as another user without access to their files, keys and processes."""
INFO_FD = 3
"""File descriptor on which a command reports the pid of a process that it started."""
WHAT_WORKS = "apt install bubblewrap"
_TOOLS = "/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin:/run/current-system/sw/bin"


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxCommand:
    """Command line, environment and folder with which a program is started."""

    argv: tuple[str, ...]
    environ: Mapping[str, str]
    cwd: Path = Path("/")
    reports_pid: bool = False
    """It writes `{"child-pid": ...}` to `INFO_FD`: the program is that process, a child of the started one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxProgram:
    """A program of model code to run in a sandbox."""

    argv: tuple[str, ...]
    environ: Mapping[str, str]
    cwd: Path
    with_parent: bool
    """It is killed when the process that started it ends."""
    is_init: bool = False
    """It is process 1 of its own pid namespace and reaps orphans."""


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """Own mounts and processes by bubblewrap and, for forks, an own network."""

    path: str
    uid: int | None
    """Uid that owns what the program may write; None: this user. So it is with every engine."""
    name: str = "bubblewrap"
    """Short name for messages and records."""
    hides: bool = True
    """Whether it hides files, processes and other gangs, and gives a private `/tmp`."""
    gaps: str = "own commits see the machine's other folders read-only, and its network"
    """What model code can still see, for messages."""

    @property
    def text(self) -> str:
        """Description for messages."""
        who = "in a user namespace" if self.uid is None else f"as uid {self.uid}"
        return f"bubblewrap {who}: files, processes and environment of its own"

    def command(self, program: SandboxProgram, view: SandboxView) -> SandboxCommand:
        """How `program` is started so that it sees `view`."""
        argv = [self.path, "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
        argv += ["--unshare-user"] if self.uid is None else []
        argv += [] if view.network else ["--unshare-net"]
        argv += ["--die-with-parent", "--new-session"] if program.with_parent else []
        argv += ["--as-pid-1", "--info-fd", str(INFO_FD)] if program.is_init else []
        argv += [*mounts(view), "--chdir", str(program.cwd), "--"]
        other = [] if self.uid is None else _another_user(self.uid, with_parent=program.with_parent)
        return SandboxCommand(argv=(*argv, *other, *_with_environ(program)), environ=CLEAN, reports_pid=program.is_init)


@dataclass(frozen=True, slots=True)
class OtherUser:
    """Another uid with a clean environment: files that are closed to other users stay closed."""

    uid: int
    name: str = "user"
    hides: bool = False
    gaps: str = (
        "model code sees every file that all users may read, other processes' command lines, the network, and gangs of"
        f" other own commits, or of other forks; {WHAT_WORKS} hides them"
    )

    @property
    def text(self) -> str:
        """Description for messages."""
        return f"uid {self.uid}: environment and home of its own"

    def command(self, program: SandboxProgram, view: SandboxView) -> SandboxCommand:
        """How `program` is started; nothing of `view` is enforced by mounts."""
        del view
        other = _another_user(self.uid, with_parent=program.with_parent)
        enter = [_tool("env"), f"--chdir={program.cwd}"]
        return SandboxCommand(argv=(*other, *enter, *_with_environ(program)), environ=CLEAN)


@dataclass(frozen=True, slots=True)
class Unconfined:
    """No sandbox: model code runs as the current user."""

    reason: str
    uid: int | None = None
    name: str = "none"
    hides: bool = False
    gaps: str = "model code runs as this user and may read whatever this user may"

    @property
    def text(self) -> str:
        """Description for messages."""
        return f"none: {self.reason}"

    def command(self, program: SandboxProgram, view: SandboxView) -> SandboxCommand:
        """How `program` is started; nothing of `view` is enforced by mounts."""
        del view
        return SandboxCommand(argv=program.argv, environ=program.environ, cwd=program.cwd)


SandboxEngine = Bubblewrap | OtherUser | Unconfined
"""One way to confine model code on this machine."""

CLEAN = {"PATH": _TOOLS, "LANG": "C.UTF-8"}
"""Environment of the helper programs outside; variables of a line, such as LD_PRELOAD, are set inside only."""


def mounts(view: SandboxView) -> list[str]:
    """Options of bwrap for `view`, in order: of two mounts at one path the later one counts."""
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
    """`--dir` options between the deepest of `covers` and `path`; bwrap would create them closed to other users."""
    above = list(reversed(path.parents))
    deepest = max((number for number, each in enumerate(above) if each in covers), default=len(above))
    return [word for each in above[deepest + 1 :] for word in ("--dir", str(each))]


def _another_user(uid: int, *, with_parent: bool) -> list[str]:
    """Command prefix that drops root permanently."""
    argv = [_tool("setpriv"), "--reuid", str(uid), "--regid", str(uid), "--clear-groups", "--no-new-privs"]
    argv += ["--bounding-set=-all", "--inh-caps=-all"]
    return [*argv, "--pdeathsig", "KILL"] if with_parent else argv


def _with_environ(program: SandboxProgram) -> list[str]:
    """Command that starts the program with its environment only."""
    return [_tool("env"), "-i", *(f"{name}={value}" for name, value in program.environ.items()), *program.argv]


def _tool(name: str) -> str:
    """Absolute path of a program, so that it is not looked up in a folder of model code."""
    return shutil.which(name, path=_TOOLS) or f"/usr/bin/{name}"


_Mode = Literal["auto", "required", "off"]
_TRY_SECONDS = 20.0


def find_engine(mode: _Mode, *, wide: bool, places: tuple[Path, ...] = ()) -> SandboxEngine:
    """The strongest engine that works on this machine.

    Args:
        mode: `sandbox.mode` of the site.
        wide: As in `SandboxView`.
        places: Folders that model code must be able to enter.
    """
    if mode == "off":
        return Unconfined("sandbox.mode = off in site.toml")
    if not sys.platform.startswith("linux"):
        return Unconfined(f"{sys.platform} has no namespaces")
    path, is_root = shutil.which("bwrap"), os.geteuid() == 0
    why = "bubblewrap is not installed"
    if path is not None:
        bubblewrap = Bubblewrap(str(Path(path).absolute()), UIDS[wide] if is_root else None)
        if (problem := _trial(bubblewrap, wide=wide)) is None:
            return bubblewrap
        why = f"bubblewrap does not work here: {problem}"
    if not is_root:
        return Unconfined(why)
    other = OtherUser(UIDS[wide])
    closed = next((f"{place} is closed to others" for place in places if not is_reachable(place)), None)
    if (problem := closed or _trial(other, wide=wide)) is None:
        return other
    return Unconfined(f"{why}; another user does not work either: {problem}")


@cache
def _trial(engine: SandboxEngine, *, wide: bool) -> str | None:
    """Why `engine` does not work; None: it works. Tried once a process."""
    with tempfile.TemporaryDirectory(prefix="gangline-try-") as name:
        folder = Path(name).resolve()
        folder.chmod(0o755)  # for another user
        hidden = hidden_paths()
        view = SandboxView(
            wide=wide, network=wide, tmp=folder, read=(*system_paths(), *python_paths(hidden)), write=(folder,),
            hidden=hidden,
        )  # fmt: skip
        argv = (sys.executable, "-c", "import gangline.errors")
        program = SandboxProgram(
            argv=argv, environ=model_environ(home=folder, tmp=folder), cwd=folder, with_parent=True
        )
        try:
            command = engine.command(program, view)
            done = subprocess.run(
                command.argv, env=command.environ, capture_output=True, stdin=subprocess.DEVNULL, check=False,
                timeout=_TRY_SECONDS,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    if done.returncode == 0:
        return None
    said = done.stderr.decode(errors="replace").strip().splitlines()
    return said[-1][:200] if said else f"exit {done.returncode}"
