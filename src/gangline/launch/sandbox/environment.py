"""Environment variables of model code: an allow list from the driver's environment, and an own home.

Variables that frameworks know and a program does not get are named: those that its code reads, and others.
"""

import os
import re
import site
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gangline.storage.objects import code_layer

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


_HUB = "transformers datasets huggingface_hub tokenizers diffusers accelerate peft trl evaluate"
_TORCH = "torch torchvision torchaudio lightning pytorch_lightning"
_READERS = {
    r"(HF|HUGGING_?FACE|TRANSFORMERS|DATASETS)_\w+": f"{_HUB} sentence_transformers",
    r"WANDB_\w+": "wandb",
    r"MLFLOW_\w+": "mlflow",
    r"COMET_\w+": "comet_ml",
    r"NEPTUNE_\w+": "neptune",
    r"(TORCH|TORCHINDUCTOR|TRITON|PYTORCH|NCCL|GLOO)_\w+": f"{_TORCH} {_HUB}",
    r"(KERAS|TF)_\w+": "keras tensorflow",
    r"(XLA|JAX)_\w+": "jax flax",
    r"AWS_\w+": "boto3 botocore s3fs aiobotocore",
    r"GOOGLE_\w+": "google gcsfs",
    r"AZURE_\w+": "azure adlfs",
    r"(https?|no|all)_proxy": f"requests urllib urllib3 httpx aiohttp wandb mlflow boto3 torchvision {_HUB}",
    r"(XDG_CACHE|OMP|MKL|OPENBLAS|NUMEXPR|KMP|PIP|UV)_\w+": "",
}
"""Names of variables -> packages that read them."""
_IMPORT = re.compile(r"^\s*(?:import|from)\s+(\w+)", re.MULTILINE)
_MOST_BYTES = 1 << 20
"""Size of a file that is still searched."""


@dataclass(frozen=True, slots=True)
class MissedVariables:
    """Names of variables that the driver has and the program lacks."""

    read: tuple[str, ...]
    """Names that a file of the code has, or that a package which it imports reads."""
    others: tuple[str, ...]


def missed_variables(environ: Mapping[str, str], given: Iterable[str], code: bytes) -> MissedVariables:
    """Variables in `environ` that frameworks know, but that are neither passed on nor in `given`.

    Args:
        environ: Environment of the driver.
        given: Names that the line sets.
        code: Code layer of the commit.
    """
    known = {name for name in environ if environ[name] and _readers(name) is not None}
    missed = sorted(known - set(given) - set(passed_on(environ)))
    texts = _texts(code) if missed else []
    imported = {package for text in texts for package in _IMPORT.findall(text)}
    words = {word for text in texts for word in re.findall(r"\w+", text)}
    read = tuple(name for name in missed if name in words or imported & {*(_readers(name) or "").split()})
    return MissedVariables(read, tuple(name for name in missed if name not in read))


def _readers(name: str) -> str | None:
    """Packages that read the variable; None: no framework knows it."""
    return next((each for names, each in _READERS.items() if re.fullmatch(names, name, re.IGNORECASE)), None)


def _texts(code: bytes) -> list[str]:
    return [str(file.data, "utf-8", "replace") for file in code_layer.read_layer(code) if len(file.data) <= _MOST_BYTES]
