"""Secrets that `[train.env]` names: a file each beside the checkpoint key, a variable in the ranks, nothing elsewhere.

A launcher writes the files; no argument, plan or PodSet ever holds a value. What ranks say in their last words and logs
is carried on without them, as far as they stand there as they are.
"""

from collections.abc import Mapping
from pathlib import Path

from gangline.sanitize import concealable
from gangline.spec.secrets import VARIABLE

NAMES = "GANGLINE_SECRET_VARIABLES"
"""Variable of the ranks: the names of those that are secret."""


def secret_environ(folder: Path) -> dict[str, str]:
    """Variables of the ranks from the gang's folder of secrets."""
    files = sorted(folder.glob(f"{VARIABLE}*"))
    found = {path.name.removeprefix(VARIABLE): path.read_text("utf-8") for path in files}
    return found | {NAMES: " ".join(found)} if found else {}


def secret_values(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Of the variables that are secret, longest first."""
    return concealable(environ.get(name, "") for name in environ.get(NAMES, "").split())
