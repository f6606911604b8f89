"""Marks that a rank wrote the metrics file of its gang, which all ranks of a machine share. Standard library only.

GANGLINE_METRICS_FILE is its path. A mark is an empty file in GANGLINE_METRICS_WRITERS, named by the rank; processes
that the program itself starts, as `torchrun` does, have a RANK of their own.
"""

import os
import sys
from collections.abc import Mapping
from typing import Any


def begin(environ: Mapping[str, str]) -> None:
    """Watch this process from now on."""
    file, marks = os.path.abspath(environ["GANGLINE_METRICS_FILE"]), environ["GANGLINE_METRICS_WRITERS"]
    name = os.path.basename(file)
    is_marked = False

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal is_marked
        if is_marked or event not in ("open", "os.rename"):
            return
        try:
            path = _written(event, arguments)
            if path.endswith(name) and os.path.abspath(path) == file:
                is_marked = True
                os.makedirs(marks, exist_ok=True)
                mark = os.path.join(marks, str(int(environ.get("RANK", "0"))))
                os.close(os.open(mark, os.O_CREAT | os.O_WRONLY, 0o644))
        except Exception:  # the record lacks a mark, and the program continues
            return

    sys.addaudithook(hook)


def _written(event: str, arguments: tuple[Any, ...]) -> str:
    """The path that is about to be written; empty: none is."""
    if event == "os.rename":
        return os.fsdecode(arguments[1])
    path, _, flags = arguments
    return "" if isinstance(path, int) or not flags & (os.O_WRONLY | os.O_RDWR) else os.fsdecode(path)
