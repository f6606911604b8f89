"""Minutes that a five-field cron text names, in UTC. `spec.grammar` has said that the text is one.

As in every cron: where both day fields are restricted, either is enough; 0 and 7 are Sunday.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from gangline.errors import ConfigError
from gangline.spec.config.grammar import is_cron

_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Cron:
    """The minutes that five fields name, in UTC."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """0 is Sunday."""
    any_day: bool
    any_weekday: bool

    @staticmethod
    def parse(text: str) -> "Cron":
        """Raises ConfigError where `text` is no such thing."""
        if not is_cron(text):
            raise ConfigError(f"trigger.schedule: wanted five fields such as '0 3 * * 1-5', found {text[:80]!r}")
        words = text.split()
        sets = [_numbers(word, *bounds) for word, bounds in zip(words, _RANGES, strict=True)]
        minutes, hours, days, months, weekdays = sets
        return Cron(
            minutes, hours, days, months, frozenset(day % 7 for day in weekdays), words[2].startswith("*"),
            words[4].startswith("*"),
        )  # fmt: skip

    def names(self, moment: datetime) -> bool:
        """Is the minute of `moment` one of them?"""
        of_day = moment.day in self.days
        of_week = moment.isoweekday() % 7 in self.weekdays
        day = (of_day and of_week) if self.any_day or self.any_weekday else (of_day or of_week)
        return day and moment.month in self.months and moment.hour in self.hours and moment.minute in self.minutes

    def newest(self, *, after: float, until: float) -> float | None:
        """The last minute it names in (after, until], both in seconds since the epoch; at most a day is looked at."""
        moment = datetime.fromtimestamp(until, UTC).replace(second=0, microsecond=0)
        earliest = max(after, until - 86_400)
        while moment.timestamp() > earliest:
            if self.names(moment):
                return moment.timestamp()
            moment -= _MINUTE
        return None


def _numbers(word: str, low: int, high: int) -> frozenset[int]:
    return frozenset(number for part in word.split(",") for number in _part(part, low, high))


def _part(part: str, low: int, high: int) -> range:
    span, _, step = part.partition("/")
    first, _, last = span.partition("-")
    if span == "*":
        begin, end = low, high
    else:
        begin = int(first)
        end = int(last) if last else (high if step else begin)
    return range(begin, end + 1, int(step or 1))
