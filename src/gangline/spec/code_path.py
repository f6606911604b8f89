"""Where a process that runs model code finds its modules: the folders of the code layer, before anything else. Pure.

`STARTUP` comes before them in PYTHONPATH: its `sitecustomize` runs first in every Python program of a rank, whether it
knows of gangline or not, and takes that folder from the path again.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import gangline

STARTUP = Path(str(gangline.__file__)).parent / "train" / "startup"
CODE_PATH = "GANGLINE_CODE_PATH"
"""Variable of a rank that lists its folders of code, as PYTHONPATH does."""


def code_folders(code: Path, path: Sequence[str]) -> tuple[str, ...]:
    """The folder that the program is started in, and those of `project.path`, which are relative to it."""
    return (str(code), *(os.path.normpath(code / each) for each in path))


def from_top(folder: str, path: Sequence[str]) -> tuple[str, ...]:
    """`path` of a program that starts in `folder` of the layer, for a process that starts at its top."""
    return (folder, *(os.path.normpath(f"{folder}/{each}") for each in path)) if folder else tuple(path)


def python_path(folders: Sequence[str], inherited: str | None) -> str:
    """PYTHONPATH of a process that runs model code."""
    return os.pathsep.join(filter(None, [str(STARTUP), *folders, inherited]))
