"""Body of a webhook before it is trusted: signatures in constant time, then JSON within bounds. No I/O."""

import hmac
import json
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from gangline.forge.protocol import InvalidSignatureError, MalformedDeliveryError
from gangline.git.branches import LOCAL, is_branch

MAX_BYTES = 25 << 20
MAX_DEPTH = 32
"""Real deliveries nest eight deep."""
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)
_REPOSITORY = re.compile(r"[A-Za-z0-9_.-]{1,100}(?:/[A-Za-z0-9_.-]{1,100}){1,20}")
_LONE = re.compile("[\ud800-\udfff]")
"""Halves of a character, which no UTF-8 can hold."""


def lower_header_names(headers: Mapping[str, str]) -> dict[str, str]:
    """`headers` with names in lower case."""
    return {name.lower(): value for name, value in headers.items()}


def check_hmac(secret: str, body: bytes, given: str) -> None:
    """Refuse a body that was not signed with HMAC-SHA-256 under `secret`; `given` is its lower-case hex digest."""
    wanted = hmac.new(secret.encode(), body, sha256).hexdigest()
    if not hmac.compare_digest(wanted.encode(), given.encode("utf-8", "replace")):
        raise InvalidSignatureError


def check_secret(secret: str, given: str) -> None:
    """Refuse a delivery that does not carry `secret` itself."""
    if not hmac.compare_digest(sha256(secret.encode()).digest(), sha256(given.encode("utf-8", "replace")).digest()):
        raise InvalidSignatureError


def read_json(body: bytes) -> dict[str, Any]:
    """The object in `body`.

    Raises:
        MalformedDeliveryError: Too large, too deep, no JSON, or no object.
    """
    if len(body) > MAX_BYTES:
        raise MalformedDeliveryError(f"wanted at most {MAX_BYTES >> 20} MiB, found {len(body)} bytes")
    if _is_deeper(body, MAX_DEPTH):
        raise MalformedDeliveryError(f"wanted JSON at most {MAX_DEPTH} deep")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise MalformedDeliveryError("wanted JSON; set the webhook's content type to application/json") from error
    if not isinstance(found, dict):
        raise MalformedDeliveryError(f"wanted a JSON object, found {type(found).__name__}")
    return found


def _is_deeper(body: bytes, most: int) -> bool:
    """Whether brackets nest too deep, known at the first that does: 25 MiB of brackets take no longer than 33."""
    depth = 0
    for match in _TOKEN.finditer(body):
        mark = match[0][0]
        if mark in b"[{":
            depth += 1
            if depth > most:
                return True
        elif mark in b"]}":
            depth -= 1
    return False


def value_at(found: Any, *path: str) -> Any:
    """Value at `path`; None where something of it is missing."""
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def text_at(found: Any, *path: str) -> str:
    """Text of 1 to 1,000 characters at `path` of a delivery; raises MalformedDeliveryError."""
    value = value_at(found, *path)
    if not isinstance(value, str) or not value or len(value) > 1000 or _LONE.search(value):
        raise MalformedDeliveryError(f"wanted text at {'.'.join(path)}")
    return value


def number_at(found: Any, *path: str) -> int:
    """A positive whole number at `path` of a delivery; raises MalformedDeliveryError."""
    value = value_at(found, *path)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**53:
        raise MalformedDeliveryError(f"wanted a number at {'.'.join(path)}")
    return value


def repository_at(found: Any, *path: str) -> str:
    """`owner/name` at `path` of a delivery; raises MalformedDeliveryError."""
    name = text_at(found, *path)
    if not is_repository(name):
        raise MalformedDeliveryError(f"wanted owner/name at {'.'.join(path)}")
    return name


def is_repository(name: str) -> bool:
    """`owner/name`, or a path of groups, that stays one name in a URL."""
    return _REPOSITORY.fullmatch(name) is not None and not {".", ".."} & set(name.split("/"))


def branch_ref(ref: str) -> str | None:
    """Branch name of `refs/heads/...`; None: a tag, or no branch that git would take."""
    name = ref.removeprefix(LOCAL)
    return name if ref.startswith(LOCAL) and is_branch(name) else None


def delivery_id(headers: Mapping[str, str], names: tuple[str, ...], body: bytes) -> str:
    """The forge's id of a delivery, from the first of `names` that is there; else the body's digest."""
    given = next((headers[name] for name in names if headers.get(name)), "")
    return given if re.fullmatch(r"[A-Za-z0-9_.:-]{1,200}", given) else sha256(body).hexdigest()
