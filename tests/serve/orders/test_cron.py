"""Minutes of a cron text, against the slowest version that is obviously right."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.errors import ConfigError
from gangline.serve.orders.cron import Cron


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment", "named"),
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
    ],
)
def test_a_minute_is_named_or_not(text, moment, named):
    assert Cron.parse(text).names(at(moment)) is named


@pytest.mark.parametrize("text", ["", "* * * *", "60 * * * *", "* * * * mon", "*/0 * * * *", "1-0 * * * *", "@daily"])
def test_what_is_no_cron_is_refused(text):
    with pytest.raises(ConfigError, match="five fields"):
        Cron.parse(text)


minutes = st.sampled_from(["*", "0", "*/7", "3-50/9", "1,2,58"])
hours = st.sampled_from(["*", "0", "23", "*/6"])


@given(minute=minutes, hour=hours, start=st.integers(0, 100_000), length=st.integers(0, 3000))
def test_the_newest_minute_is_the_last_that_counting_finds(minute, hour, start, length):
    cron = Cron.parse(f"{minute} {hour} * * *")
    after, until = start * 60 + 30.0, (start + length) * 60 + 30.0
    first = datetime.fromtimestamp((start + 1) * 60, UTC)
    earliest = max(after, until - 86_400)
    counted = [first + timedelta(minutes=n) for n in range(length)]
    named = [each.timestamp() for each in counted if cron.names(each) and each.timestamp() > earliest]
    assert cron.newest(after=after, until=until) == (named[-1] if named else None)
