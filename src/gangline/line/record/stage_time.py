"""Duration of a stage under one driver, several drivers, or a driver that looks every few minutes.

Time counts while a driver works on the stage, and between two drivers while the gang runs. The time between the end of
a gang, or the death of a driver without a gang, and the next driver does not count.
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
    """Clock of one stage under one driver."""

    recorded_seconds: float
    """Seconds that earlier drivers recorded."""
    recorded_until: datetime
    """End of the time that they recorded."""
    start: datetime
    """When this driver took the stage over."""
    start_monotonic: float
    """The same on the monotonic clock."""
    gang_seconds: float = 0.0
    """Time between two drivers during which the gang ran."""

    @classmethod
    def of(cls, record: Record, name: str) -> Self:
        """A clock that starts now; `record` is as it was before this driver wrote to it."""
        start = datetime.now(UTC)
        return cls(
            recorded_seconds=stage(record, name).seconds or 0.0,
            recorded_until=parse_time(uncounted_since(record, name)) or start,
            start=start,
            start_monotonic=time.monotonic(),
        )

    def gang_found(self, ended: str | None) -> None:
        """Count a gang that ran between two drivers until `ended`; None: it still runs, or its end has no time.

        Of several gangs the last one counts: the ones before it had ended when it was started.
        """
        until = min(parse_time(ended) or self.start, self.start)
        self.gang_seconds = max((until - self.recorded_until).total_seconds(), 0.0)

    @property
    def seconds(self) -> float:
        """Duration up to now."""
        return self.recorded_seconds + self.gang_seconds + time.monotonic() - self.start_monotonic
