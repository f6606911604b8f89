"""Minutes that a schedule names, by examples and against a search minute by minute."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.serve.orders.schedules import newest_minute

DAY = 86_400


def names(cron, minute):
    return newest_minute(cron, after=minute - 60, until=minute) == minute


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("cron", "minute", "named"),
    [
        ("* * * * *", "2026-03-01T12:34", True),
        ("0 3 * * 1-5", "2026-03-02T03:00", True),  # a Monday
        ("0 3 * * 1-5", "2026-03-01T03:00", False),
        ("0 3 * * 0", "2026-03-01T03:00", True),
        ("0 3 * * 7", "2026-03-01T03:00", True),
        ("*/15 * * * *", "2026-03-01T12:45", True),
        ("*/15 * * * *", "2026-03-01T12:46", False),
        ("5-20/5,59 1,2 * * *", "2026-03-01T02:15", True),
        ("5-20/5,59 1,2 * * *", "2026-03-01T02:25", False),
        ("10/20 * * * *", "2026-03-01T02:50", True),
        ("0 0 13 * 5", "2026-03-13T00:00", True),  # both days restricted: either is enough
        ("0 0 13 * 5", "2026-03-06T00:00", True),
        ("0 0 13 * 5", "2026-03-07T00:00", False),
        ("0 0 29 2 *", "2028-02-29T00:00", True),
        ("0 0 30 2 *", "2026-03-02T00:00", False),  # a day that no month has
    ],
)
def test_a_minute_is_named_or_not(cron, minute, named):
    assert names(cron, at(minute)) is named


@pytest.mark.parametrize(
    "cron", ["", "* * * *", "60 * * * *", "* * * * mon", "*/0 * * * *", "1-0 * * * *", "@daily", "0 * * * * *"]
)
def test_what_is_not_a_cron_names_no_minute(cron):
    assert newest_minute(cron, after=0.0, until=10.0 * DAY) is None


fields = {"*": range(60), "0": [0], "23": [23], "*/7": range(0, 60, 7), "3-50/9": range(3, 51, 9), "1,2,58": [1, 2, 58]}
minutes = st.sampled_from(list(fields))
hours = st.sampled_from(["*", "0", "23", "*/7"])


@given(minute=minutes, hour=hours, start=st.integers(0, 100_000), length=st.integers(0, 3000))
def test_the_newest_minute_is_the_last_that_counting_finds(minute, hour, start, length):
    counted = (datetime.fromtimestamp((start + 1 + n) * 60, UTC) for n in range(length))
    named = [each.timestamp() for each in counted if each.minute in fields[minute] and each.hour in fields[hour]]
    found = newest_minute(f"{minute} {hour} * * *", after=start * 60 + 30.0, until=(start + length) * 60 + 30.0)
    assert found == (named[-1] if named else None)
