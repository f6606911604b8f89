"""Events told again give the values that a scraper would have read then."""

from prometheus_client.openmetrics.parser import text_string_to_metric_families
from tests.metrics.test_from_events import STEP, values
from tests.report.records import passed

from gangline.metrics.from_events import replay
from gangline.metrics.openmetrics import render_openmetrics


def steps(count, seconds=1.0, start=1000.0):
    return [{**STEP, "step": at, "loss": 10.0 - at, "time": start + at * seconds} for at in range(1, count + 1)]


def moments(events, **asked):
    asked = {"run": "r", "rank": 0, "every_seconds": 5.0} | asked
    return [(time, values(book)) for time, book in replay(events, **asked)]


def test_each_moment_holds_what_was_last_said_before_it():
    found = moments(steps(20))
    assert [time for time, _ in found] == [1006, 1012, 1018, 1020]
    assert [reported["train_loss", "r"] for _, reported in found] == [4.0, -2.0, -8.0, -10.0]
    assert found[-1][1]["train_tokens_total", "r"] == 20 * STEP["tokens"]


def test_events_without_a_time_or_before_their_time_are_passed_over():
    events = [{**STEP, "time": "soon"}, *steps(3), {**STEP, "time": 10.0, "loss": 99.0}]
    assert [reported["train_loss", "r"] for _, reported in moments(events)] == [7.0]
    assert moments([]) == []


def test_a_rank_above_the_limit_reports_nothing_of_itself():
    assert moments(steps(3), rank=300, world_size=512)[-1][1] == {}


def test_the_text_has_each_family_once_and_each_series_in_the_order_of_its_times():
    record = passed()
    ranks = [each for rank in (0, 1) for each in replay(steps(60), run=record.run.id, rank=rank, every_seconds=5.0)]
    text = render_openmetrics([record], moments=[*ranks])
    assert text.count("# TYPE gangline_train_loss ") == 1
    families = {family.name: family for family in text_string_to_metric_families(text)}
    by_rank = {}
    for sample in families["gangline_rank_last_step"].samples:
        by_rank.setdefault(sample.labels["rank"], []).append(float(sample.timestamp))
    assert set(by_rank) == {"0", "1"}
    assert all(times == sorted(set(times)) for times in by_rank.values())
