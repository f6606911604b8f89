"""While a driver lives its port tells what the record says; when it is gone, nothing is left to scrape."""

import json
import socket
import urllib.request
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.line.conftest import Remembers
from tests.report.records import passed

from gangline.launch.protocol import GangEvent, GangStatus
from gangline.line.run.run_metrics import ExportingObserver, model_flops_utilization
from gangline.line.stages.run_line import run_line
from gangline.metrics.exporter import DriverExporter
from gangline.metrics.record_values import created_at
from gangline.spec.config.site import GpuTable, MetricsTable, Site
from gangline.spec.forecast import Forecast


def samples(address):
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {
        (each.name.removeprefix("gangline_"), *sorted(value for value in each.labels.values() if value)): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
    }


@pytest.fixture
def exporter():
    exporter = DriverExporter(0)
    yield exporter
    exporter.close()


def step(number, **changes):
    data = {"event": "step", "rank": 0, "step": number, "seconds": 0.5, "tokens": 1000} | changes
    return GangEvent(kind="progress", data=data)


class Scrapes(Remembers):
    """Reads the driver's series as each stage ends."""

    def __init__(self, targets):
        super().__init__()
        self._targets, self.scraped, self.address = targets, {}, ""

    def stage_started(self, name):
        (path,) = self._targets.glob("*.driver.json")
        (group,) = json.loads(path.read_text())
        (self.address,) = group["targets"]
        self.scraped[name] = samples(self.address)


@pytest.mark.row("M3")
def test_a_run_serves_its_series_while_it_is_driven_and_not_after(workspace):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        site = replace(workspace.site, metrics=MetricsTable(driver_port=port))
        workspace.run(until="resolve")  # settles the inventory
        seen = Scrapes(workspace.repo / ".gangline" / "targets")
        record = run_line(workspace.repo, site=site, environ=workspace.environ, observer=seen, until="plan")
    assert seen.address != f"127.0.0.1:{port}"
    last = seen.scraped["plan"]
    assert last["run_stage", *sorted([record.run.id, "done", "resolve"])] == 1
    assert last["run_stage", *sorted([record.run.id, "build", "running"])] == 0
    assert last["run_created_timestamp_seconds", record.run.id] == created_at(record)
    assert not list((workspace.repo / ".gangline" / "targets").glob("*"))
    with pytest.raises(OSError, match="refused"):
        samples(seen.address)


def test_without_a_port_in_the_site_nothing_is_served(workspace):
    workspace.run(until="plan")
    assert not (workspace.repo / ".gangline" / "targets").exists()


def test_progress_of_the_training_reports_who_joined_what_is_left_and_what_restarted(exporter):
    record, seen = passed(), Remembers()
    watch = ExportingObserver(seen, exporter, record=lambda: record, site=Site())
    run, address = record.run.id, f"127.0.0.1:{exporter.port}"
    watch.progress("train", GangEvent(kind="waiting", text="no room"))
    assert samples(address)["run_waiting", run] == 1
    status = GangStatus(state="running", joined=2, ranks=2, restarts=1)
    watch.progress("train", GangEvent(kind="state", status=status))
    watch.progress("train", step(100))
    found = samples(address)
    assert found["run_waiting", run] == 0
    assert (found["gang_ranks", *sorted([run, "joined"])], found["gang_ranks", *sorted([run, "wanted"])]) == (2, 2)
    assert found["gang_restarts_total", run] == 1
    assert found["run_eta_seconds", run] == 10.0
    assert ("train_mfu_ratio", run) not in found


def test_steps_of_other_ranks_and_other_gangs_say_nothing_of_the_time_that_is_left(exporter):
    record = passed()
    watch = ExportingObserver(Remembers(), exporter, record=lambda: record, site=Site())
    watch.progress("train", step(100, rank=1))
    watch.progress("evaluate", step(100))
    watch.progress("train", step(100, seconds=float("nan")))
    watch.progress("train", step("soon"))
    assert "run_eta_seconds" not in {key[0] for key in samples(f"127.0.0.1:{exporter.port}")}


def test_everything_is_passed_on_to_who_watches(exporter):
    seen, record = Remembers(), passed()
    watch = ExportingObserver(seen, exporter, record=lambda: record, site=Site())
    watch.run_started(record)
    watch.stage_started("plan")
    assert samples(f"127.0.0.1:{exporter.port}")["run_stage", *sorted([record.run.id, "plan", "running"])] == 1
    watch.stage_ended("plan", record.stages["plan"])
    watch.note("a word")
    watch.run_ended(record)
    assert (seen.ended, seen.notes) == ([("plan", "done")], ["a word"])


def test_mfu_is_six_operations_a_parameter_and_token_over_what_the_gpus_deliver():
    gpu = GpuTable(memory_bytes=141e9, flops_per_second={"bf16": 1e15})
    plan = replace(passed().plan, device="cuda", precision="bf16", world_size=8, forecast=Forecast(parameters=10**10))
    assert model_flops_utilization(Site(gpu={"H200": gpu}), plan, tokens_per_second=50_000.0) == pytest.approx(0.375)
    assert model_flops_utilization(Site(gpu={"H200": gpu}), replace(plan, device="cpu"), tokens_per_second=1.0) is None
    assert (
        model_flops_utilization(Site(gpu={"H200": gpu}), replace(plan, precision="fp16"), tokens_per_second=1.0) is None
    )
    assert model_flops_utilization(Site(gpu={"a": gpu, "b": gpu}), plan, tokens_per_second=1.0) is None
