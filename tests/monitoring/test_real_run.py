"""A real run, a real Prometheus: what it scraped is what the record says, and it ends with the run."""

import re
import subprocess
import sys
import time

import pytest
from tests.monitoring.prometheus import Prometheus, eventually, promtool
from tests.monitoring.real import watched as watch
from tests.monitoring.sources import ALERTS, RULES, rules_of

from gangline.metrics.record_values import ended_at
from gangline.report.run.html import render_html
from gangline.report.run.junit import render_junit
from gangline.report.run.markdown import render_markdown
from gangline.report.run.terminal import page
from gangline.units import format_number

pytestmark = pytest.mark.tools


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    with watch(tmp_path_factory.mktemp("watched")) as found:
        yield found


def test_ranks_and_driver_were_found_and_scraped_while_they_lived(watched):
    plan = watched.record.plan
    assert watched.largest("gangline_train_step") <= plan.steps
    assert watched.largest("gangline_train_samples_total") > 0
    assert watched.largest("gangline_gang_ranks", state="joined") == plan.world_size
    assert watched.largest("gangline_run_stage", stage="train", state="running") == 1
    assert watched.largest("gangline_run_eta_seconds") > 0
    for rank in range(plan.world_size):
        assert watched.largest("gangline_rank_step_seconds", rank=str(rank)) > 0


@pytest.mark.row("M2")
def test_finals_in_prometheus_are_the_values_of_the_record(watched):
    server, record = watched.server, watched.record
    mine = f'run="{watched.run}", job="service"'
    for name, metric in record.metrics.items():
        assert server.value(f'gangline_eval_value{{{mine}, metric="{name}"}}') == metric.value
    for cause, seconds in record.ledger.seconds.items():
        assert server.value(f'gangline_ledger_seconds_total{{{mine}, cause="{cause}"}}') == seconds
    for stage, info in record.stages.items():
        if info.seconds is not None:
            assert server.value(f'gangline_run_stage_seconds{{{mine}, stage="{stage}"}}') == info.seconds
    assert server.value(f'gangline_run_verdict{{{mine}, verdict="{record.run.verdict}"}}') == 1
    (info,) = server.query(f"gangline_run_info{{{mine}}}")
    assert info["metric"]["commit"] == record.commit.sha


def test_five_surfaces_show_the_number_that_prometheus_has(watched):
    record = watched.record
    value = watched.server.value(f'gangline_eval_value{{run="{watched.run}", metric="accuracy", job="service"}}')
    shown = re.compile(rf"(?<![\d.]){re.escape(format_number(value))}(?![\d])")
    for surface in (page(record), render_markdown(record), render_html(record), render_junit(record)):
        assert shown.search(surface), surface[:2000]


@pytest.mark.row("M3")
def test_series_of_ranks_and_driver_are_stale_within_a_minute_and_nothing_is_left_to_scrape(watched):
    live = f'{{run="{watched.run}", job="gangline", __name__=~"gangline_.*"}}'
    assert eventually(lambda: watched.server.query(f"count({live})") == [])
    (counts,) = watched.server.range(f"count({live})", start=watched.began, end=time.time())
    assert counts["values"][-1][0] < watched.ended + 60
    assert not list(watched.targets.glob("*"))
    assert eventually(lambda: [each["labels"]["job"] for each in watched.server.targets()] == ["service"])


def test_no_alert_fires_for_a_run_that_is_well(watched):
    watched.server.wait("count(gangline_run_verdict)")
    assert watched.server.query('ALERTS{alertstate="firing"}') == []


@pytest.mark.row("M1")
def test_a_prometheus_that_was_away_gets_what_it_missed_once(watched, tmp_path):
    finals, data = tmp_path / "finals.om", tmp_path / "server" / "data"
    command = [sys.executable, "-m", "gangline", "metrics", "export", watched.run, "--steps", "1", "--out", str(finals)]
    command += ["--repo", str(watched.repo), "--site", str(watched.site)]
    subprocess.run(command, check=True, capture_output=True)
    for _ in range(2):
        promtool("tsdb", "create-blocks-from", "openmetrics", finals, data)
    at = ended_at(watched.record)
    with Prometheus(tmp_path / "server") as server:
        for name, metric in watched.record.metrics.items():
            asked = f'gangline_eval_value{{run="{watched.run}", metric="{name}"}}'
            assert server.value(asked, at=at + 1) == metric.value
            assert server.value(f"count_over_time({asked}[1h])", at=at + 60) == 1
        loss = f'gangline_train_loss{{run="{watched.run}"}}'
        assert server.value(f"count_over_time({loss}[1h])", at=at + 60) > 3
        assert server.value(f"max_over_time({loss}[1h])", at=at + 60) > server.value(loss, at=at + 1)
        held = server.value(f'sum(gangline_ledger_seconds_total{{run="{watched.run}"}})', at=at + 1)
        assert held == pytest.approx(watched.record.ledger.allocated_seconds, rel=1e-3)


@pytest.mark.parametrize("rule", rules_of([*RULES, *ALERTS]), ids=lambda rule: rule.get("record") or rule["alert"])
def test_every_expression_is_an_instant_vector_to_a_real_prometheus(rule, prometheus):
    for sample in prometheus.query(rule["expr"]):
        assert set(sample) == {"metric", "value"}


DEVICES = {rule["record"] for rule in rules_of([each for each in RULES if each.stem == "devices"])}
QUIET = {
    "run:gangline_train_step:open": "its one run has ended",
    "run:gangline_run_info:recent": "its one run was made long ago",
}


@pytest.mark.parametrize("name", [rule["record"] for rule in rules_of(RULES) if rule["record"] not in DEVICES])
def test_every_recorded_series_has_samples_with_the_labels_of_its_name(name, prometheus):
    expression = next(rule["expr"] for rule in rules_of(RULES) if rule["record"] == name)
    found = prometheus.query(expression)
    if name in QUIET:
        assert found == []
        return
    assert found, expression
    level = name.partition(":")[0] if ":" in name and not name.startswith("gangline_") else ""
    for sample in found:
        assert set(level.split("_")) - {""} <= set(sample["metric"])
