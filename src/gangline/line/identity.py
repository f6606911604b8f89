"""Names: the run id and the names of its gangs. The same question gives the same name, so a retry rejoins. Pure."""

import base64
from hashlib import sha256

from gangline.errors import UsageError
from gangline.spec.codec import canonical
from gangline.spec.plan import Role

_ROLE_SUFFIX: dict[Role, tuple[str, str]] = {"train": ("", "t"), "evaluate": ("-eval", "e"), "prove": ("-prove", "p")}
MAX_GANG_NAME = 42


def run_id(project: str, commit: str, *, content: str, line: str, attempt: int) -> str:
    """`<project>-<commit 8>-<6>`, at most 36 characters.

    Args:
        project: Slug of the line.
        commit: Full name of the commit.
        content: The commit again, or the digest of a dirty tree.
        line: Digest of the effective line.
        attempt: From 1; `--again` asks for the next one.
    """
    asked = sha256(canonical([project, content, line, attempt])).digest()
    return f"{project}-{commit[:8]}-{base64.b32encode(asked)[:6].decode().lower()}"


def gang_name(run: str, role: Role, attempt: int = 1) -> str:
    """Name of a run's gang, RFC 1035, at most 42 characters; later attempts of one role end in `-t2`, `-e2`, `-p2`."""
    first, letter = _ROLE_SUFFIX[role]
    name = run + (first if attempt == 1 else f"-{letter}{attempt}")
    assert len(name) <= MAX_GANG_NAME, name
    return name


def parts(run: str) -> tuple[str, str]:
    """Project and first eight letters of the commit of a run id.

    Raises:
        UsageError: It is no run id.
    """
    pieces = run.rsplit("-", 2)
    if len(pieces) != 3 or len(pieces[1]) != 8 or len(pieces[2]) != 6 or not pieces[0]:
        raise UsageError(f"wanted a run id like bytegpt-9f31c2a0-k7q2mx, found {run!r}; gangline list shows them")
    return pieces[0], pieces[1]
