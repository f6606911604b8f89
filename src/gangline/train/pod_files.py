"""Where a pod keeps what it fetches: GANGLINE_PLAN and GANGLINE_CODE are keys of blobs there, these are the paths."""

from pathlib import Path

from gangline.errors import IntegrityError
from gangline.train.environment import KeeperEnvironment

_PREFIX = "blobs/sha256/"


def plan_path(environment: KeeperEnvironment) -> Path:
    return environment.home / "plan.json"


def code_path(environment: KeeperEnvironment) -> Path:
    """Raises `IntegrityError` where GANGLINE_CODE is no key of a blob."""
    key = str(environment.code)
    digest = key.removeprefix(_PREFIX)
    if digest == key or len(digest) != 64 or not digest.isalnum():
        raise IntegrityError(f"GANGLINE_CODE={key}: wanted the key of a code layer, {_PREFIX}<64 hex digits>")
    return environment.home.parent / "code" / digest
