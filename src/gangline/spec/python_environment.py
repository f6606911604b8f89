"""Python environment of processes that run model code: PYTHONPATH from the code layer, and variables of a virtualenv.

`STARTUP` precedes the code layer in PYTHONPATH: its `sitecustomize` runs first in every Python program of a rank, and
removes that folder from the path again.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import gangline

STARTUP = Path(str(gangline.__file__)).parent / "train" / "startup"
CODE_PATH = "GANGLINE_CODE_PATH"
"""Variable of a rank that lists its folders of code, as PYTHONPATH does."""


def code_folders(code: Path, path: Sequence[str]) -> tuple[str, ...]:
    """The folder that the program is started in, and those of `project.path`, which are relative to it."""
    return (str(code), *(os.path.normpath(code / each) for each in path))


def paths_from_top(folder: str, path: Sequence[str]) -> tuple[str, ...]:
    """`path` of a program that starts in `folder` of the layer, for a process that starts at its top."""
    return (folder, *(os.path.normpath(f"{folder}/{each}") for each in path)) if folder else tuple(path)


def python_path(folders: Sequence[str], inherited: str | None) -> str:
    """PYTHONPATH of a process that runs model code."""
    return os.pathsep.join(filter(None, [str(STARTUP), *folders, inherited]))


OTHER_PYTHON = ("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "VIRTUAL_ENV")
"""What leads one Python to the packages of another."""


def environ_of_interpreter(python: str, environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` of a process in another Python for one in the virtual environment of `python`, a `bin/python`."""
    folder = Path(python).parent
    own = {name: value for name, value in environ.items() if name not in OTHER_PYTHON}
    return own | {"PATH": _path_with(folder, own), "VIRTUAL_ENV": str(folder.parent)}


def environ_of_this_interpreter(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` with the programs of this process's virtual environment first, even if it is not activated."""
    if sys.prefix == sys.base_prefix:
        return dict(environ)
    return {**environ, "PATH": _path_with(Path(sys.executable).parent, environ)}


def _path_with(folder: Path, environ: Mapping[str, str]) -> str:
    return os.pathsep.join([str(folder), environ.get("PATH", os.defpath)])
