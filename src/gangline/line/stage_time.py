"""How long a stage took: under one driver to its end, several after each other, or looks every few minutes.

It counts while a driver is at work on it, and between two of them for as long as its gang goes on. The time until
the next look after a gang has ended, or after a driver died without one, is not counted.
"""

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from gangline.line.clock import moment
from gangline.line.states import stage, uncounted_since
from gangline.spec.record import Record


@dataclass(kw_only=True, slots=True)
class StageTime:
    """The clock of one stage under one driver."""

    counted: float
    """Seconds of the drivers before, as far as they wrote them down."""
    since: datetime
    """What came later they did not count."""
    found: datetime
    """When this driver came."""
    began: float
    """The same on the monotonic clock."""
    gap: float = 0.0
    """Seconds in between in which the gang went on."""

    @classmethod
    def of(cls, record: Record, name: str) -> Self:
        """From now on; `record` is as it was before this driver wrote to it."""
        found = datetime.now(UTC)
        return cls(
            counted=stage(record, name).seconds or 0.0,
            since=moment(uncounted_since(record, name)) or found,
            found=found,
            began=time.monotonic(),
        )

    def gang_found(self, ended: str | None) -> None:
        """A gang was there already: it goes on (None), or went on until `ended`, which may name no time.

        Of several the last one counts: the ones before it had ended when it was started.
        """
        until = min(moment(ended) or self.found, self.found)
        self.gap = max((until - self.since).total_seconds(), 0.0)

    @property
    def seconds(self) -> float:
        """Up to now."""
        return self.counted + self.gap + time.monotonic() - self.began
