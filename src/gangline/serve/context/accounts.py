"""Accounts by token: the site's token file, the service's own local token, and the tokens in the database.

Only SHA-256 digests are compared. A token is 32 random bytes after `gl_`, so its digest needs no salt. `permissions`
says what a principal may do.
"""

import hmac
import secrets
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from time import time
from typing import Any

from gangline.errors import ConfigError
from gangline.serve.database.tokens import Tokens
from gangline.serve.database.types import ROLES, Principal

PREFIX = "gl_"
MAX_CHARACTERS = 200
"""A longer bearer is refused."""


@dataclass(frozen=True, slots=True)
class KnownToken:
    """A token of the site's file, or of this service alone."""

    digest: str
    principal: Principal


class Accounts:
    """Finds the principal behind a token."""

    def __init__(self, tokens: Tokens, known: tuple[KnownToken, ...] = (), clock: Callable[[], float] = time) -> None:
        self.tokens = tokens
        self._known = known
        self._clock = clock

    def of_token(self, token: str) -> Principal | None:
        """None: not known."""
        return self.of_digest(digest_of(token)) if len(token) <= MAX_CHARACTERS else None

    def of_digest(self, digest: str) -> Principal | None:
        """Principal of a known token; None for a revoked or expired one."""
        principals = [token.principal for token in self._known if hmac.compare_digest(token.digest, digest)]
        return principals[0] if principals else self.tokens.find(digest, now=self._clock())


def new_token() -> str:
    """A random token of 256 bits with our prefix."""
    return PREFIX + secrets.token_urlsafe(32)


def digest_of(token: str) -> str:
    """SHA-256 of a token in hexadecimal, the only form in which it is stored."""
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def read_token_file(text: str, *, source: str) -> tuple[KnownToken, ...]:
    """Tokens of a TOML file: `[[token]]` with `name`, `digest` and `roles`, a table of project (or `*`) to role.

    Raises:
        ConfigError: All that is wrong with it, none of its values repeated.
    """
    try:
        plain = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source}: wanted TOML with [[token]] tables, found: {error}") from error
    entries = plain.get("token", [])
    if set(plain) - {"token"} or not isinstance(entries, list):
        raise ConfigError(f"{source}: wanted [[token]] tables alone; gangline token add --file prints one")
    problems = [
        f"{source}: token {at}: {problem}" for at, entry in enumerate(entries, 1) if (problem := _entry_problem(entry))
    ]
    if problems:
        raise ConfigError("\n".join(problems))
    return tuple(
        KnownToken(entry["digest"], Principal(name=entry["name"], roles=dict(entry["roles"]))) for entry in entries
    )


def _entry_problem(entry: Any) -> str | None:
    if not isinstance(entry, Mapping) or set(entry) != {"name", "digest", "roles"}:
        return "wanted name, digest and roles, and nothing else"
    digest, roles = entry["digest"], entry["roles"]
    if not isinstance(entry["name"], str) or not entry["name"]:
        return "wanted a name"
    if not isinstance(digest, str) or len(digest) != 64 or set(digest) - set("0123456789abcdef"):
        return "wanted digest to be a SHA-256 in 64 hexadecimal letters; never put the token itself here"
    if not isinstance(roles, Mapping) or not roles or not all(role in ROLES for role in roles.values()):
        return f"wanted roles as a table of project (or *) to one of {', '.join(ROLES)}"
    return None
