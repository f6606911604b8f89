"""Lines of pods' logs: times of any zone, lines of any length."""

import pytest

from gangline.launch.kubernetes.client.streaming import MAX_LOG_LINE_BYTES, log_lines, utc


@pytest.mark.parametrize(
    ("stamp", "expected"),
    [
        ("2026-01-01T00:00:01.123456789Z", "2026-01-01T00:00:01.123456789Z"),
        ("2026-01-01T01:00:01.5+01:00", "2026-01-01T00:00:01.500000000Z"),
        ("2026-01-01T00:00:01Z", "2026-01-01T00:00:01.000000000Z"),
        ("2026-01-01T00:00:01.5", None),
        ("unable", None),
        ("", None),
    ],
)
def test_times_of_any_zone_sort_as_words(stamp, expected):
    assert utc(stamp) == expected


def test_line_without_time_and_line_without_end_are_left_out():
    chunks = [
        b"2026-01-01T00:00:01Z one\nunable to retrieve\n2026-01-01T00:00:02Z ",
        b"t" * (MAX_LOG_LINE_BYTES + 1),
        b"\n",
    ]
    chunks += [b"2026-01-01T00:00:03Z \xff three"]
    found = [text for _, text in log_lines(chunks, since=None)]
    assert found == ["one", "\ufffd three"]
