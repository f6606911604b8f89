"""Updates of one step on their way from their owners: sent and applied bucket by bucket, in one order on all ranks."""

from collections import deque
from collections.abc import Callable, Sequence

import torch

from gangline.errors import TrainingError
from gangline.optim.executors.publish import Finish, Send


class OutstandingUpdates:
    """Handle of a step. One bucket is applied while the next ones travel."""

    def __init__(self, sends: Sequence[Send], *, in_flight: int, done: Callable[[], None]) -> None:
        """Send the first buckets.

        Args:
            sends: Of all buckets, in the order that all ranks with copies have.
            in_flight: Buckets that travel, or have come and are not applied, at once. Where these are all, what a rank
                waits for does not depend on what the others do after the step.
            done: Called once all are applied.
        """
        self._waiting, self._sent, self._in_flight, self._done = deque(sends), deque[Finish](), in_flight, done
        self._applied, self._is_applying = 0, False
        self._send()
        self._end()

    def wait(self) -> None:
        """Apply all that is outstanding.

        Raises:
            TrainingError: An earlier call was interrupted while it applied.
        """
        self.apply(self._applied + len(self._sent) + len(self._waiting))

    def apply(self, buckets: int) -> None:
        """Apply the first `buckets` of the step, as far as they are not.

        Raises:
            TrainingError: As of `wait`.
        """
        if self._is_applying:
            raise TrainingError("a step was interrupted while its updates were applied; resume from a checkpoint")
        if buckets <= self._applied:
            return
        with torch.no_grad():
            self._is_applying = True
            while self._applied < buckets:
                self._sent.popleft()()
                self._applied += 1
                self._send()
            self._is_applying = False
        self._end()

    def _send(self) -> None:
        while self._waiting and len(self._sent) < self._in_flight:
            self._sent.append(self._waiting.popleft()())

    def _end(self) -> None:
        if not self._waiting and not self._sent:
            self._done()
