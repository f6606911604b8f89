"""Privacy that a member spent: an append-only ledger, on the disk before the first step of what it pays for.

A run reserves its whole epsilon once; each of its trainings, of rounds that merged and of those that were lost, is a
line, too. Nothing is refunded. Budgets of runs add up plainly: no accountant of ours is in it.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gangline.errors import GateError, IntegrityError, storage_errors
from gangline.spec.codec import canonical, from_json
from gangline.storage.folder.durable_files import sync_folder


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerLine:
    """Either what a run reserves, or one training of it."""

    run: str
    epsilon: float | None = None
    """Reserved for each record; None: the line is a training."""
    delta: float = 0.0
    trainings: int = 0
    """Trainings that the reserved epsilon covers."""


class PrivacyLedger:
    """The ledger in one file; any number of processes use it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def spent(self) -> float:
        """Epsilon of all runs together."""
        with self._locked() as handle:
            return sum(line.epsilon or 0.0 for line in self._lines(handle))

    def trainings(self, run: str) -> int:
        """How many trainings of `run` were paid for."""
        with self._locked() as handle:
            return _made(self._lines(handle), run)

    def require_room(self, run: str, *, epsilon: float, budget: float) -> None:
        """Raises GateError where `epsilon` of a run that has reserved none exceeds what is left of `budget`."""
        with self._locked() as handle:
            _require_room(self._lines(handle), run, epsilon, budget)

    def begin_training(self, run: str, *, epsilon: float, delta: float, trainings: int, budget: float) -> int:
        """Pay for one more training of `run`; on the disk when it returns, and the training may begin.

        Args:
            run: Its id.
            epsilon: The run's whole epsilon, reserved with its first training.
            delta: Probability that goes with it.
            trainings: How many trainings it covers.
            budget: Largest sum over all runs.

        Returns:
            How many were paid for, this one included.

        Raises:
            GateError: The budget has no room, or all trainings that were paid for were made.
            IntegrityError: The run reserved something else, or the ledger was changed by others.
            StorageError: The disk is full; nothing was paid and nothing may begin.
        """
        with self._locked() as handle:
            lines = self._lines(handle)
            _require_room(lines, run, epsilon, budget)
            wanted = LedgerLine(run=run, epsilon=epsilon, delta=delta, trainings=trainings)
            reserved = [line for line in lines if line.run == run and line.epsilon is not None]
            if reserved and reserved != [wanted]:
                raise IntegrityError(
                    f"{run}: wanted epsilon {reserved[0].epsilon:g} for {reserved[0].trainings} trainings as it"
                    f" reserved, found {epsilon:g} for {trainings}"
                )
            made = _made(lines, run)
            if made >= trainings:
                raise GateError(
                    f"{run}: epsilon {epsilon:g} covers {trainings} trainings, and so many were made;"
                    " federated.spare_rounds covers rounds that are lost"
                )
            added = [LedgerLine(run=run)] if reserved else [wanted, LedgerLine(run=run)]
            self._append(handle, b"".join(canonical(line) + b"\n" for line in added))
            return made + 1

    @contextmanager
    def _locked(self) -> Iterator[int]:
        with storage_errors(self._path):
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield handle
        finally:
            os.close(handle)

    def _lines(self, handle: int) -> list[LedgerLine]:
        """All lines; a last one without its end was never on the disk, so no training began, and is cut off."""
        data = os.pread(handle, os.fstat(handle).st_size, 0)
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.ftruncate(handle, whole)
        try:
            return [from_json(LedgerLine, line) for line in data[:whole].splitlines()]
        except IntegrityError as error:
            raise IntegrityError(
                f"{self._path}: wanted lines as gangline wrote them, found another: {error}; no private run begins"
                " until its administrator has looked at it"
            ) from error

    def _append(self, handle: int, data: bytes) -> None:
        """Write all of `data` to the disk, or none of it."""
        before = os.fstat(handle).st_size
        with storage_errors(self._path):
            try:
                written = os.write(handle, data)
                while written < len(data):
                    written += os.write(handle, data[written:])
                os.fsync(handle)
                sync_folder(self._path.parent)
            except OSError:
                os.ftruncate(handle, before)
                raise


def _made(lines: list[LedgerLine], run: str) -> int:
    return sum(line.run == run and line.epsilon is None for line in lines)


def _require_room(lines: list[LedgerLine], run: str, epsilon: float, budget: float) -> None:
    others = sum(line.epsilon or 0.0 for line in lines if line.run != run)
    if others + epsilon > budget:
        raise GateError(
            f"{run}: wanted epsilon {epsilon:g}, found {max(0.0, budget - others):g} left of {budget:g};"
            " `epsilon` of member.toml is the budget of all runs together"
        )
