"""M5: whatever number is told is stored as it is or refused, and every answer about it is valid JSON."""

import json
import math
import urllib.request

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from tests.monitoring.exposed import Exposed, text_of
from tests.monitoring.prometheus import Prometheus

from gangline.metrics.series_store import SeriesStore

pytestmark = pytest.mark.row("M5")
odd = st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from(
    [
        math.nan,
        math.inf,
        -math.inf,
        0.0,
        -0.0,
        5e-324,
        2.2250738585072014e-308,
        1.7976931348623157e308,
        -1e308,
        1e16 + 2,
    ]
)
texts = st.text(max_size=30)


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(reported=st.lists(st.tuples(texts, texts, odd), max_size=20))
def test_what_is_exposed_is_read_back_as_the_finite_numbers_that_were_reported(reported):
    book, wanted = SeriesStore(), {}
    for run, metric, value in reported:
        book.set("eval_value", value, run=run, metric=metric)
        if math.isfinite(value):
            wanted[shown(run), shown(metric)] = value
    found = {
        (sample.labels["run"], sample.labels["metric"]): sample.value
        for family in text_string_to_metric_families(text_of(book))
        for sample in family.samples
        if sample.name == "gangline_eval_value"
    }
    assert found == wanted


def shown(text):
    """As a label tells it: one printable line."""
    return text if text.isprintable() else "".join(each if each.isprintable() else " " for each in text).strip()


@pytest.mark.tools
@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_real_prometheus_stores_every_odd_number_and_answers_in_valid_json(tmp_path, count):
    numbers = [math.ldexp((-1) ** at * (1 + at / count), (at * 37) % 2040 - 1020) for at in range(count)]
    book, odd_ones = SeriesStore(limit=count, whole=2 * count), [math.nan, math.inf, -math.inf]
    for at, number in enumerate([*numbers, *odd_ones]):
        book.set("eval_value", number, run=f"run-{at % 7}", metric=f"m{at}")
    with Exposed(text_of(book)) as exposed, Prometheus(tmp_path, [exposed.address]) as server:
        server.wait("count(gangline_eval_value)")
        url = f"{server.url}/api/v1/query?query=gangline_eval_value"
        with urllib.request.urlopen(url, timeout=60) as answer:
            rows = json.load(answer, parse_constant=pytest.fail)["data"]["result"]
        stored = {int(row["metric"]["metric"][1:]): float(row["value"][1]) for row in rows}
        assert stored == dict(enumerate(numbers))
        assert server.value('gangline_series_dropped_total{reason="not_finite"}') == len(odd_ones)
