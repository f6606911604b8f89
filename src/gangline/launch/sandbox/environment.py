"""The environment of model code: names that are passed on from the driver's, a home of its own, nothing else."""

import os
import re
import site
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

_PASSED_ON = re.compile(r"PATH|HOME|LANG|LC_.*|TMPDIR|CUDA_.*|NVIDIA_.*|LD_LIBRARY_PATH|VIRTUAL_ENV|PYTHONPATH")
USER = "gangline"
"""Whose home it is: its uid has no name on this machine, and torch before 2.12 asks for one when it is imported."""
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL")
"""NVIDIA_API_KEY is no setting of a driver."""


_KNOWN = re.compile(
    r"(HF|HUGGING_?FACE|TRANSFORMERS|DATASETS|WANDB|MLFLOW|COMET|NEPTUNE|TORCH|TORCHINDUCTOR|TRITON|PYTORCH|NCCL|GLOO|KERAS"
    r"|TF|XLA|JAX|XDG_CACHE|AWS|GOOGLE|AZURE|OMP|MKL|OPENBLAS|NUMEXPR|KMP|PIP|UV)_[A-Z0-9_]+|(https?|no|all)_proxy",
    re.IGNORECASE,
)
"""Variables that frameworks and their libraries look for."""


def is_secret(name: str) -> bool:
    """A variable of this name holds a secret, or says where one is."""
    return _SECRET.search(name) is not None


def passed_on(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What programs of ours see of the driver's environment."""
    return {name: value for name, value in environ.items() if _PASSED_ON.fullmatch(name) and not is_secret(name)}


def missed_variables(environ: Mapping[str, str], given: Iterable[str]) -> tuple[str, ...]:
    """Names of variables in `environ` that frameworks know, that are not passed on and not `given` otherwise."""
    known = {name for name in environ if _KNOWN.fullmatch(name) and environ[name]}
    return tuple(sorted(known - set(given) - set(passed_on(environ))))


def model_environ(*, home: Path, tmp: Path) -> dict[str, str]:
    """What model code sees of the driver's environment, with home and temporary folder of its own."""
    found = passed_on() | {"HOME": str(home), "TMPDIR": str(tmp), "LOGNAME": USER, "USER": USER}
    if (packages := _user_packages()) is not None:  # found by way of the home, which is another one now
        found["PYTHONUSERBASE"] = str(packages)
    return found


def _user_packages() -> Path | None:
    """Base folder of what `pip install --user` laid out, where this interpreter imports from it."""
    folder = site.getusersitepackages() if site.ENABLE_USER_SITE else ""
    return Path(site.getuserbase()) if folder in sys.path else None
