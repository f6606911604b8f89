"""The error tree, with the exit code and the retry class that every caller acts on.

    GanglineError
    ├── UsageError          2   never    the call is wrong
    ├── ConfigError        10   never    a file is wrong: fix it
    │   └── NotInstalledError  10   never    this machine or image lacks a program: the run stays open
    ├── CapacityError      20   later    no room now: requeued, restart budget untouched
    ├── TrainingError      30   never    user code raised, or the restart budget is spent
    │   ├── NonFiniteError     31   never    loss or gradients are not finite
    │   ├── OutOfMemoryError   32   changed  once more with half the micro-batch, if that is "auto"
    │   ├── NoProgressError    33   same     the watchdog saw no step: new generation
    │   └── LostPeerError      34   same     another rank died first: new generation
    ├── BuildError         35   never    an environment, image or layer did not build
    ├── StorageError       40   same     backoff and one total deadline, idempotent calls only
    ├── IntegrityError     50   never    a digest, signature or policy refused
    ├── GateError          60   never    a gate, drill or comparison said no: a person decides
    ├── CancelledError     70   never    cancelled or superseded: no failure
    └── StillRunning       75   again    a command that follows ran out of its time

A class exists because a caller acts on it. A message says what was wanted, what was found and what works.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Literal

RetryClass = Literal["never", "later", "changed", "same", "free", "again"]

SIGKILL_CODE = 137
SIGTERM_CODE = 143


class GanglineError(Exception):
    """Root of every error that gangline raises on purpose."""

    exit_code: ClassVar[int] = 1
    retry: ClassVar[RetryClass] = "never"


class UsageError(GanglineError):
    """The call is wrong."""

    exit_code = 2


class ConfigError(GanglineError):
    """A file, or a value of it, is wrong."""

    exit_code = 10


class NotInstalledError(ConfigError):
    """This machine, or the image of this task, lacks a program or a package; it says nothing of the commit."""


class CapacityError(GanglineError):
    """There is no room now."""

    exit_code = 20
    retry = "later"


class TrainingError(GanglineError):
    """User code raised, or the restart budget is spent."""

    exit_code = 30


class NonFiniteError(TrainingError):
    """A loss or a gradient is not finite."""

    exit_code = 31


class OutOfMemoryError(TrainingError):
    """A device has too little memory."""

    exit_code = 32
    retry = "changed"


class NoProgressError(TrainingError):
    """No step ended within the time of the watchdog."""

    exit_code = 33
    retry = "same"


class LostPeerError(TrainingError):
    """Another rank died first."""

    exit_code = 34
    retry = "same"


class BuildError(GanglineError):
    """An environment, an image or a layer did not build."""

    exit_code = 35


class StorageError(GanglineError):
    """A store or a forge did not do what it should; it may later."""

    exit_code = 40
    retry = "same"


class IntegrityError(GanglineError):
    """A digest, a signature or a policy does not allow it."""

    exit_code = 50


class GateError(GanglineError):
    """A gate, a drill or a comparison says no."""

    exit_code = 60


class CancelledError(GanglineError):
    """The run was cancelled or superseded."""

    exit_code = 70


class StillRunning(GanglineError):
    """A command that follows ran out of its time; what it follows is still running."""

    exit_code = 75
    retry = "again"


_BY_CODE: dict[int, type[GanglineError]] = {
    cls.exit_code: cls
    for cls in (
        UsageError, ConfigError, CapacityError, TrainingError, NonFiniteError, OutOfMemoryError, NoProgressError,
        LostPeerError, BuildError, StorageError, IntegrityError, GateError, CancelledError, StillRunning,
    )
}  # fmt: skip


CODES_OF_GANGLINE = frozenset(_BY_CODE)
CODES_OF_RANKS = CODES_OF_GANGLINE - {each.exit_code for each in (BuildError, CancelledError, StillRunning)} | {
    SIGTERM_CODE
}
"""What a rank can say of itself, that of a coordinator also of its members; the others speak of a line."""


def error_for(exit_code: int) -> type[GanglineError]:
    """Class that speaks for the exit code of a process of gangline; another code is a TrainingError."""
    return _BY_CODE.get(exit_code, TrainingError)


def retry_class(exit_code: int, *, disrupted: bool = False, saved: bool = False) -> RetryClass:
    """What happens after a rank or pod ended with `exit_code`.

    Args:
        exit_code: As the shell counts: death by signal S is 128 + S.
        disrupted: The platform took the node away (eviction, preemption, drain).
        saved: The rank was asked to stop and left a complete checkpoint behind.
    """
    if exit_code in (SIGKILL_CODE, SIGTERM_CODE):
        asked = disrupted or (saved and exit_code == SIGTERM_CODE)
        return "free" if asked else "same"
    cls = _BY_CODE.get(exit_code)
    return cls.retry if cls else "never"


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """The block writes this file, or below this folder: a full disk or a read-only one is a StorageError."""
    try:
        yield
    except OSError as error:
        said = error.strerror or str(error)
        named = error.filename if isinstance(error.filename, str) else ""  # of a descriptor it is a number
        said += f": {named}" if named and Path(named) != path else ""
        raise StorageError(f"wanted to write {path}, found: {said}; make room or allow it, then run again") from error
