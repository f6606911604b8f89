"""Detection of the sandbox engine that works on this machine, by a trial that imports gangline inside."""

import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Literal

from gangline.launch.sandbox.engines import UIDS, Bubblewrap, OtherUser, SandboxEngine, SandboxProgram, Unconfined
from gangline.launch.sandbox.environment import model_environ
from gangline.launch.sandbox.host_paths import hidden_paths, is_reachable, python_paths, system_paths
from gangline.launch.sandbox.view import SandboxView

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
    closed = next((f"{each} is closed to others" for each in places if not is_reachable(each)), None)
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
