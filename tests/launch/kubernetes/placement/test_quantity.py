"""Quantities, against what Kubernetes documents of them."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.errors import ConfigError
from gangline.launch.kubernetes.placement.resources import parse_quantity, to_scheduler_units

WRITTEN = {
    "0": 0, "2": 2, "0.5": Fraction(1, 2), ".5": Fraction(1, 2), "5.": 5, "+3": 3, "-1": -1,
    "500m": Fraction(1, 2), "100u": Fraction(1, 10_000), "1n": Fraction(1, 10**9),
    "1k": 1000, "3M": 3 * 10**6, "1G": 10**9, "1T": 10**12, "1P": 10**15, "1E": 10**18,
    "1Ki": 1024, "1Mi": 2**20, "1.5Gi": 3 * 2**29, "1Ti": 2**40, "1Pi": 2**50, "1Ei": 2**60,
    "1e3": 1000, "1E3": 1000, "12e-1": Fraction(6, 5), "1E+2": 100,
}  # fmt: skip


@pytest.mark.parametrize(("text", "value"), WRITTEN.items())
def test_every_form_has_its_exact_value(text, value):
    assert parse_quantity(text) == value


@pytest.mark.parametrize(
    "text", ["", "x", "1 Gi", "1gi", "1K", "Gi", "1e", "--1", "1Gi1", "٣", "1e9999", "9" * 65, "nan", "inf"]
)
def test_what_is_not_a_quantity_is_refused_by_its_text(text):
    with pytest.raises(ConfigError, match="wanted a quantity"):
        parse_quantity(text)


@given(millis=st.integers(min_value=0, max_value=10**9))
def test_cores_count_in_thousandths(millis):
    assert to_scheduler_units("cpu", f"{millis}m") == millis


@given(value=st.fractions(min_value=0, max_value=10**6, max_denominator=10**9))
def test_parts_of_a_unit_round_up(value):
    nano = -(-value * 10**9 // 1)
    assert to_scheduler_units("memory", f"{nano}n") == -(-nano // 10**9)


def test_plain_numbers_of_json_are_quantities():
    assert (to_scheduler_units("memory", 1024), to_scheduler_units("cpu", 0.25)) == (1024, 250)
