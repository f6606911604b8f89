"""References to secrets: files say where a secret is, never what it is."""

import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gangline.errors import ConfigError

FORMS = "secret:env:NAME, secret:file:PATH or secret:k8s:NAME/KEY"
VARIABLE = "env."
"""Prefix of the names of variables among the secrets of a gang."""
AWS_VARIABLES = frozenset({
    "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME", "AWS_REGION", "AWS_ENDPOINT_URL_STS",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AWS_EC2_METADATA_SERVICE_ENDPOINT", "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_CONFIG_FILE", "AWS_PROFILE",
})  # fmt: skip
"""Variables that say where an identity of AWS is found."""
_SCHEME = "secret:"
_REFERENCE = re.compile(r"secret:(env:[A-Za-z_][A-Za-z0-9_]*|file:[^\0\n]+|k8s:[a-z0-9][a-z0-9.-]*/[A-Za-z0-9._-]+)")


@dataclass(frozen=True, slots=True)
class SecretReference:
    """Where a secret lies; never its value."""

    kind: Literal["env", "file", "k8s"]
    name: str
    """Variable, path or `NAME/KEY`."""


def is_reference(text: str) -> bool:
    """Has `text` the form `secret:SCHEME:NAME`?"""
    return _REFERENCE.fullmatch(text) is not None


def plain_of(env: Mapping[str, str]) -> dict[str, str]:
    """Variables that say what they are."""
    return {name: value for name, value in env.items() if not value.startswith(_SCHEME)}


def references_of(env: Mapping[str, str]) -> dict[str, str]:
    """Variables that say where their value is."""
    return {name: value for name, value in env.items() if value.startswith(_SCHEME)}


def parse_reference(text: str) -> SecretReference:
    """The parts of `text`; it is never repeated in the message, because it may be the secret itself."""
    if not is_reference(text):
        raise ConfigError(f"wanted a reference to a secret, found a value that is not shown; write {FORMS}")
    _, kind, name = text.split(":", 2)
    return SecretReference(kind, name)  # type: ignore[arg-type]  # the grammar admits these three words alone


def resolve_secret(text: str, environ: Mapping[str, str]) -> str:
    """The secret behind a reference, without the newline at its end.

    Raises:
        ConfigError: Not there, empty, readable by everybody, or known to the cluster alone; what works is said.
    """
    reference = parse_reference(text)
    if reference.kind == "k8s":
        raise ConfigError(
            f"{text}: only a pod of that cluster can read it; here write secret:env:NAME or secret:file:PATH"
        )
    secret = _from_file(text, reference.name) if reference.kind == "file" else environ.get(reference.name, "")
    if not secret.strip():
        raise ConfigError(f"{text}: wanted a secret, found nothing; set the variable or fill the file")
    return secret.rstrip("\r\n")


def _from_file(text: str, name: str) -> str:
    path = Path(name).expanduser()
    try:
        mode = path.stat().st_mode
        if mode & (stat.S_IROTH | stat.S_IWOTH):
            raise ConfigError(f"{text}: wanted a file closed to others, found mode {mode & 0o777:o}; chmod 600 {path}")
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{text}: wanted a readable text file, found {error}") from error
