"""What is served and exported is what prometheus-client's own parsers read back."""

import socket
import urllib.request
from dataclasses import replace

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from tests.metrics.test_from_events import STEP
from tests.report.records import passed

from gangline.metrics.catalogue import CATALOGUE
from gangline.metrics.exporter import DriverExporter, RankExporter
from gangline.metrics.openmetrics import render_openmetrics
from gangline.metrics.record_values import ended_at


def scrape(exporter):
    with urllib.request.urlopen(f"http://127.0.0.1:{exporter.port}/metrics", timeout=10) as answer:
        return answer.read().decode()


@pytest.fixture
def rank():
    exporter = RankExporter("r", 0, 0, world_size=2, steps=120)
    yield exporter
    exporter.close()


def test_a_scrape_of_a_rank_reads_back_as_declared(rank):
    rank.observe(STEP)
    rank.observe({"event": "saved", "step": 7, "size_bytes": 9, "seconds": 0.5, "blocking_seconds": 0.02})
    text = scrape(rank)
    samples = {sample.name: sample for family in parse_text(text) for sample in family.samples}
    assert samples["gangline_train_loss"].value == 2.5
    assert samples["gangline_train_steps"].value == 120
    assert samples["gangline_checkpoint_duration_seconds_count"].value == 1
    assert "_created" not in text
    bases = {name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count") for name in samples}
    assert bases <= set(CATALOGUE)


def test_a_port_that_is_taken_costs_the_metrics_and_nothing_else():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        exporter = RankExporter("r", 0, port)
        assert f"127.0.0.1:{port}" in exporter.problem
        exporter.observe(STEP)
        exporter.close()


def test_the_port_is_free_after_closing():
    exporter = RankExporter("r", 1, 0)
    port = exporter.port
    exporter.close()
    again = RankExporter("r", 1, port)
    assert again.problem is None
    again.close()


def test_a_gang_that_judges_a_model_reports_its_ranks_and_no_training():
    exporter = RankExporter("r", 0, 0, steps=120, trains=False)
    exporter.observe(STEP)
    exporter.observe({"event": "saved", "step": 7, "size_bytes": 9, "seconds": 0.5})
    names = {sample.name for family in parse_text(scrape(exporter)) for sample in family.samples}
    exporter.close()
    assert names == {"gangline_rank_step_seconds", "gangline_rank_wait_ratio", "gangline_rank_last_step"}


@pytest.mark.row("M3")
def test_a_driver_that_closed_answers_no_one():
    exporter = DriverExporter(0)
    exporter.show(passed())
    exporter.expect(passed().run.id, 12.5)
    exporter.joined(passed().run.id, 2)
    text = scrape(exporter)
    assert "gangline_run_eta_seconds" in text
    assert f'gangline_gang_ranks{{run="{passed().run.id}",state="joined"}} 2.0' in text
    exporter.close()
    with pytest.raises(OSError, match="refused"):
        scrape(exporter)


@pytest.mark.row("M2")
def test_finals_of_records_read_back_with_the_time_they_ended():
    one = passed()
    other = replace(one, run=replace(one.run, id="bytegpt-00000000-bbbbbb"))
    text = render_openmetrics([other, one])
    assert text.endswith("# EOF\n")
    families = {family.name: family for family in parse_openmetrics(text)}
    found = {
        sample.labels["run"]: sample for sample in families["gangline_eval_value"].samples if "eval_loss" in str(sample)
    }
    assert {run: sample.value for run, sample in found.items()} == {one.run.id: 2.375, other.run.id: 2.375}
    assert all(float(sample.timestamp) == pytest.approx(ended_at(one)) for sample in found.values())
    assert families["gangline_ledger_seconds"].type == "counter"


def test_no_record_gives_an_empty_document():
    assert render_openmetrics([]) == "# EOF\n"
