"""Quantities as people read them."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import units


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (61_400, "61 kB"), (3_510_000, "3.5 MB"), (5.4e9, "5.4 GB"),
     (2e15, "2000 TB")],
)  # fmt: skip
def test_bytes_read_in_powers_of_a_thousand(value, text):
    assert units.format_bytes(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.04, "0.0 s"), (9.94, "9.9 s"), (15.2, "15 s"), (74, "1 min 14 s"), (12_000, "3 h 20 min")]
)
def test_seconds_read_in_two_units(value, text):
    assert units.format_seconds(value) == text


def test_a_short_step_keeps_two_digits():
    found = [units.format_step(each) for each in (2.4e-5, 0.0034, 0.00996, 0.0125, 0.9994, 1.0, 75.0, 0.0)]
    assert found == ["0.024 ms", "3.4 ms", "10 ms", "12 ms", "999 ms", "1.0 s", "1 min 15 s", "0 ms"]


def test_counts_and_numbers_stay_short():
    assert [units.format_count(v) for v in (7, 875_264, 9_100, 1.2e6)] == ["7", "875 k", "9.1 k", "1.2 M"]
    assert [units.format_number(v) for v in (2.4712345, 0.0, 1e-5)] == ["2.471", "0", "1.0e-05"]


@given(st.lists(st.floats(), max_size=200), st.integers(1, 40))
def test_sparkline_has_one_mark_a_share_and_survives_any_float(values, width):
    line = units.sparkline(values, width)
    finite = sum(abs(v) < float("inf") for v in values)
    assert len(line) == min(width, finite)
    assert set(line) <= set("▁▂▃▄▅▆▇█")


def test_sparkline_survives_the_largest_floats():
    assert units.sparkline([1.7e308, -1.7e308, 1.7e308], 3) == "█▁█"
    for number in range(1, 60):
        assert units.sparkline([sys.float_info.max] * number, 1) == "▁"


def test_sparkline_of_a_falling_course_falls():
    line = units.sparkline([float(v) for v in range(64, 0, -1)], 8)
    assert line == "█▇▆▅▄▃▂▁"


KINDS = [units.Bytes, units.Elements, units.Flops, units.Seconds]


@pytest.mark.parametrize(("one", "other"), [(a, b) for a in KINDS for b in KINDS if a is not b])
@pytest.mark.parametrize(
    "mix", [lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a < b, lambda a, b: a == b, lambda a, b: a / b]
)
def test_amounts_of_two_kinds_do_not_mix(one, other, mix):
    with pytest.raises(TypeError, match=f"wanted {one.__name__}, found {other.__name__}"):
        mix(one(4), other(2))


def test_amounts_of_one_kind_are_numbers():
    four, two = units.Bytes(4), units.Bytes(2)
    assert (four + two, four - two, 3 * two) == (units.Bytes(6), two, units.Bytes(6))
    assert (four / two, max(two, four), two <= two, {two, units.Bytes(2)}) == (2, four, True, {two})
    with pytest.raises(TypeError):
        four + 2
