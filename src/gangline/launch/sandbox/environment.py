"""Environment variables of model code: an allow list from the driver's environment, and an own home."""

import os
import re
import site
import sys
from collections.abc import Mapping
from pathlib import Path

_PASSED_ON = re.compile(r"PATH|HOME|LANG|LC_.*|TMPDIR|CUDA_.*|NVIDIA_.*|LD_LIBRARY_PATH|VIRTUAL_ENV|PYTHONPATH")
USER = "gangline"
"""User name for a uid that has none on this machine; torch before 2.12 looks one up on import."""
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL")
"""Excludes secrets that match the allow list, such as NVIDIA_API_KEY."""


def is_secret(name: str) -> bool:
    """Whether a variable of this name holds a secret or the place of one."""
    return _SECRET.search(name) is not None


def passed_on(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables of the driver's environment that gangline's own programs get."""
    return {name: value for name, value in environ.items() if _PASSED_ON.fullmatch(name) and not is_secret(name)}


def model_environ(*, home: Path, tmp: Path) -> dict[str, str]:
    """Environment of model code: the passed-on variables with an own home and temporary folder."""
    found = passed_on() | {"HOME": str(home), "TMPDIR": str(tmp), "LOGNAME": USER, "USER": USER}
    if (packages := _user_packages()) is not None:  # found by way of the home, which is another one now
        found["PYTHONUSERBASE"] = str(packages)
    return found


def _user_packages() -> Path | None:
    """Base folder of `pip install --user`; None: this interpreter does not import from it."""
    folder = site.getusersitepackages() if site.ENABLE_USER_SITE else ""
    return Path(site.getuserbase()) if folder in sys.path else None
