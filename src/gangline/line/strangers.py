"""What strangers wrote in commits, branches and messages, made harmless before anybody reads it."""

import re

from gangline.sanitize import STEERING

_STEERING = re.compile(f"[\t\n{STEERING}]+")
"""What steers a terminal, reorders, hides or breaks lines."""
_BLANK = re.compile(
    "[\xad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u206a-\u206f\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufffb"
    "\U000e0000-\U000e0fff]"
)
"""What shows nothing, or only with the character before it: letters, marks and tags that fonts leave blank."""
_NAME_LENGTH = 244


def clean(text: str, *, limit: int) -> str:
    """`text` as one harmless line: no control, direction or zero-width characters, at most `limit` long."""
    return _STEERING.sub(" ", text).strip()[:limit]


def shown_name(branch: str) -> str | None:
    """The name of a branch, where it is what people see; None where it is not.

    `main` with an invisible character in it is a branch that others may push to: it never passes for `main`.
    """
    is_shown = clean(branch, limit=_NAME_LENGTH) == branch and not _BLANK.search(branch)
    return branch if branch and is_shown else None
