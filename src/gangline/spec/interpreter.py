"""A commit's own Python: what a process that runs in it sees of an environment that was made for another one."""

import os
from collections.abc import Mapping
from pathlib import Path

OTHER_PYTHON = ("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "VIRTUAL_ENV")
"""What leads one Python to the packages of another."""


def environ_of(python: str, environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` of a process in another Python for one in the virtual environment of `python`, a `bin/python`."""
    folder = Path(python).parent
    own = {name: value for name, value in environ.items() if name not in OTHER_PYTHON}
    path = os.pathsep.join([str(folder), own.get("PATH", os.defpath)])
    return own | {"PATH": path, "VIRTUAL_ENV": str(folder.parent)}
