"""Duration of a stage under one driver, several drivers, or a driver that looks every few minutes.

Time counts while a driver works on the stage, and between two drivers for as long as the gang runs. The time until the
next look after a gang has ended, or after a driver died without a gang, is not counted.
"""

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from gangline.line.record.states import uncounted_since
from gangline.spec.record import Record
from gangline.spec.run_flags import stage
from gangline.units import parse_time


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
            since=parse_time(uncounted_since(record, name)) or found,
            found=found,
            began=time.monotonic(),
        )

    def gang_found(self, ended: str | None) -> None:
        """A gang was there already: it goes on (None), or went on until `ended`, which may name no time.

        Of several the last one counts: the ones before it had ended when it was started.
        """
        until = min(parse_time(ended) or self.found, self.found)
        self.gap = max((until - self.since).total_seconds(), 0.0)

    @property
    def seconds(self) -> float:
        """Up to now."""
        return self.counted + self.gap + time.monotonic() - self.began
