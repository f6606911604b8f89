"""The last word of a keeper to the world outside: a line on stderr where it could not even begin, a pod's message."""

import sys
from collections.abc import Mapping
from pathlib import Path

from gangline.errors import GanglineError
from gangline.spec.gang import GangEnd
from gangline.spec.pod import to_message
from gangline.train.environment import termination_log
from gangline.train.journal import utc_now


def refuse(error: GanglineError, environ: Mapping[str, str]) -> int:
    """End by `error`, before there was a gang to speak of; its exit code."""
    print(f"{type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201  # nothing else is set up yet
    leave_message(end_by(error), termination_log(environ))
    return error.exit_code


def end_by(error: GanglineError) -> GangEnd:
    return GangEnd(exit_code=error.exit_code, retry=error.retry, reason=str(error), time=utc_now())


def leave_message(end: GangEnd, path: Path | None) -> None:
    """What the platform keeps of a pod; `path` None: this is no pod."""
    if path is None:
        return
    try:
        path.write_text(to_message(end))
    except OSError as error:
        print(f"{path}: no termination message is left: {error.strerror}", file=sys.stderr)  # noqa: T201  # its log
