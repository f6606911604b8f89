"""Inputs of a gang that come as files: secret variables, and the plan and code of a pod.

A launcher writes one file per secret into the folder of the checkpoint key; no argument, plan or PodSet holds a value.
Exit reasons and logs of ranks are passed on without these values. In a pod GANGLINE_PLAN and GANGLINE_CODE are keys of
blobs.
"""

from collections.abc import Mapping
from pathlib import Path

from gangline.errors import IntegrityError
from gangline.keeper.ipc.environment import KeeperEnvironment
from gangline.sanitize import concealable
from gangline.spec.config.secrets import VARIABLE

SECRET_NAMES = "GANGLINE_SECRET_VARIABLES"  # noqa: S105  # a name of names
"""Variable of the ranks: the names of their secret variables."""
_PREFIX = "blobs/sha256/"


def secret_environ(folder: Path) -> dict[str, str]:
    """Variables of the ranks from the gang's folder of secrets."""
    files = sorted(folder.glob(f"{VARIABLE}*"))
    found = {path.name.removeprefix(VARIABLE): path.read_text("utf-8") for path in files}
    return found | {SECRET_NAMES: " ".join(found)} if found else {}


def secret_values(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Values of the secret variables in `environ`, longest first."""
    return concealable(environ.get(name, "") for name in environ.get(SECRET_NAMES, "").split())


def plan_path(environment: KeeperEnvironment) -> Path:
    """File of the plan that a pod downloads."""
    return environment.home / "plan.json"


def code_path(environment: KeeperEnvironment) -> Path:
    """Raises `IntegrityError` where GANGLINE_CODE is not the key of a blob."""
    key = str(environment.code)
    digest = key.removeprefix(_PREFIX)
    if digest == key or len(digest) != 64 or not digest.isalnum():
        raise IntegrityError(f"GANGLINE_CODE={key}: wanted the key of a code layer, {_PREFIX}<64 hex digits>")
    return environment.home.parent / "code" / digest
