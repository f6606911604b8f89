"""What the service counts is what happened, once, under names that nobody outside can choose."""

import threading
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.report.records import passed, refused

from gangline.metrics.record_values import Price, cost_of, price_at
from gangline.metrics.series_store import SeriesStore
from gangline.serve.context.telemetry import FinalMetrics, Telemetry
from gangline.spec.config.site import ForgeTable, GpuTable, MoneyTable, ServeTable, Site
from gangline.spec.measurements import Ledger
from gangline.spec.program_files import RuntimeReport

SITE = Site(
    forge={"hub": ForgeTable(kind="github", projects={"ann/model": "bytegpt"})},
    gpu={"H200": GpuTable(memory_bytes=141e9, price_per_hour=3.0)},
    money=MoneyTable(currency="USD"),
    serve=ServeTable(repositories={"digits": "repo"}),
)


def samples(telemetry):
    """(name, labels that are set, sorted) -> value, as a scraper reads them."""
    _, text = telemetry.render()
    return {
        (each.name.removeprefix("gangline_"), *sorted(value for value in each.labels.values() if value)): each.value
        for family in text_string_to_metric_families(text.decode())
        for each in family.samples
    }


def ended(number, record=None):
    """A run of its own that ended `number` hours after the first."""
    record = record or passed()
    stages = {**record.stages}
    stages["report"] = replace(stages["report"], ended=f"2026-03-{2 + number // 24:02}T{number % 24:02}:30:00Z")
    return replace(record, run=replace(record.run, id=f"bytegpt-9f31c2a0-{number:06}"), stages=stages)


def test_a_delivery_is_counted_with_the_time_until_its_answer():
    telemetry = Telemetry.of(SITE)
    telemetry.webhook("hub", "push", "accepted", 0.02)
    telemetry.webhook("hub", "push", "repeated", 0.2)
    found = samples(telemetry)
    assert found["webhook_requests_total", "accepted", "hub", "push"] == 1
    assert found["webhook_ack_duration_seconds_count", "hub"] == 2
    assert found["webhook_ack_duration_seconds_bucket", "0.025", "hub"] == 1


@pytest.mark.row("M4")
def test_forges_that_only_a_stranger_names_share_one_series():
    telemetry = Telemetry.of(SITE)
    for number in range(1000):
        telemetry.webhook(f"evil-{number}", "other", "unknown", 0.001)
    found = samples(telemetry)
    assert found["webhook_requests_total", "other", "unknown"] == 1000
    assert not [key for key in found if "evil" in str(key)]


def test_a_run_reported_twice_counts_once_and_its_finals_are_shown():
    telemetry = Telemetry.of(SITE)
    for _ in range(2):
        telemetry.run_ended(ended(1))
    telemetry.run_ended(replace(refused(), run=replace(refused().run, id="bytegpt-55d01e7b-000000")))
    found = samples(telemetry)
    assert found["runs_total", "bytegpt", "passed"] == 1
    assert found["runs_total", "bytegpt", "refused"] == 1
    assert found["runs_total", "bytegpt", "failed"] == 0
    assert found["gate_verdicts_total", "budget", "bytegpt", "yes"] == 2
    assert found["eval_value", "bytegpt-9f31c2a0-000001", "eval_loss"] == 2.375
    assert found["run_verdict", "bytegpt-9f31c2a0-000001", "passed"] == 1


def test_a_run_that_continues_is_not_counted():
    telemetry = Telemetry.of(SITE)
    telemetry.run_ended(replace(passed(), run=replace(passed().run, state="open", verdict=None)))
    assert samples(telemetry)["runs_total", "bytegpt", "passed"] == 0


def test_counters_of_known_projects_and_forges_stand_at_zero_before_anything_happened():
    found = samples(Telemetry.of(SITE))
    assert found["runs_total", "digits", "failed"] == 0
    assert found["forge_requests_total", "away", "hub"] == 0


def test_gpu_time_and_money_are_counted_where_the_site_has_one_price():
    telemetry = Telemetry.of(SITE)
    gpus = Ledger(resource="gpu", allocated_seconds=7200.0, seconds={"compute": 7200.0})
    telemetry.run_ended(ended(1, replace(passed(), ledger=gpus)))
    telemetry.run_ended(ended(2))
    found = samples(telemetry)
    assert found["gpu_seconds_total", "bytegpt"] == 7200
    assert found["cost_total", "USD", "bytegpt"] == 6.0
    assert found["run_cost", "USD", "bytegpt-9f31c2a0-000001"] == 6.0
    assert not [key for key in found if key[0] == "run_cost" and "bytegpt-9f31c2a0-000002" in key]


def test_a_site_of_two_kinds_of_gpu_has_no_one_price():
    two = {**SITE.gpu, "L4": GpuTable(memory_bytes=24e9, price_per_hour=0.5)}
    assert price_at(replace(SITE, gpu=two)) is None
    assert price_at(SITE) == Price(3.0, "USD", next(iter(SITE.gpu)))


def test_orders_are_reported_by_state_also_those_that_are_none():
    telemetry = Telemetry.of(SITE)
    telemetry.orders({"queued": 3, "parked": 1}, 12.5)
    telemetry.orders({"queued": 1}, 2.5)
    found = samples(telemetry)
    assert (found["queue_items", "queued"], found["queue_items", "parked"]) == (1, 0)
    assert found["queue_oldest_seconds",] == 2.5


def test_a_project_without_open_runs_has_none_not_those_it_had():
    telemetry = Telemetry.of(SITE)
    telemetry.runs_active({"bytegpt": 2})
    telemetry.runs_active({})
    assert samples(telemetry)["runs_active", "bytegpt"] == 0


def test_conflicts_are_requests_that_another_writer_won():
    telemetry = Telemetry()
    telemetry.store_request("compare_and_set", "conflict", 0.01)
    telemetry.store_request("get", "ok", 0.01)
    telemetry.conditional_writes(ok=False)
    found = samples(telemetry)
    assert found["store_conflicts_total",] == 1
    assert found["store_conditional_writes",] == 0


@pytest.mark.row("M2")
def test_a_service_that_starts_again_shows_the_finals_of_runs_that_ended_without_a_scrape():
    telemetry = Telemetry.of(SITE)
    telemetry.rebuild([ended(number) for number in range(100)])
    found = samples(telemetry)
    shown = {key[1] for key in found if key[0] == "run_verdict"}
    assert shown == {f"bytegpt-9f31c2a0-{number:06}" for number in range(50, 100)}
    assert all(found["eval_value", run, "eval_loss"] == 2.375 for run in shown)
    assert found["runs_total", "bytegpt", "passed"] == 0


@pytest.mark.row("M3")
def test_the_fifty_first_run_takes_the_place_of_the_oldest_whatever_their_order():
    book = SeriesStore()
    finals = FinalMetrics(book, newest=2)
    for number in (3, 1, 4, 2, 4):
        finals.show(ended(number))
    (runs,) = [{key[0] for key in rows} for series, rows in book.values() if series.name == "gangline_run_verdict"]
    assert runs == {"bytegpt-9f31c2a0-000003", "bytegpt-9f31c2a0-000004"}


@pytest.mark.row("M4")
def test_a_training_that_was_to_end_early_leaves_no_finals():
    book = SeriesStore()
    whole = ended(1)
    cut = replace(whole, inputs=replace(whole.inputs, values={"train.stop_at": 60}))
    FinalMetrics(book).show(cut)
    assert not list(book.values())
    FinalMetrics(book).show(whole)
    assert list(book.values())


@pytest.mark.row("M4")
@pytest.mark.parametrize("mark", ["experiment", "dirty"])
def test_a_run_that_does_not_represent_its_commit_leaves_no_finals(mark):
    book, whole = SeriesStore(), ended(1)
    apart = {
        "experiment": replace(whole, inputs=replace(whole.inputs, overrides=("train.steps=1",))),
        "dirty": replace(whole, commit=replace(whole.commit, patch="blobs/sha256/00")),
    }
    FinalMetrics(book).show(apart[mark])
    assert not list(book.values())


def test_finals_of_fifty_runs_of_ten_projects_stay_below_the_cap_of_the_book():
    telemetry = Telemetry()
    for project in range(10):
        for number in range(50):
            record = ended(number)
            run = replace(record.run, id=f"p{project}-9f31c2a0-{number:06}", project=f"p{project}")
            telemetry.run_ended(replace(record, run=run))
    assert "series_dropped_total" not in {key[0] for key in samples(telemetry)}


def test_threads_that_report_at_once_lose_nothing():
    telemetry = Telemetry.of(SITE)
    threads = [
        threading.Thread(target=lambda: [telemetry.webhook("hub", "push", "accepted", 0.01) for _ in range(500)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert samples(telemetry)["webhook_ack_duration_seconds_count", "hub"] == 2000


def test_the_price_of_one_kind_of_gpu_is_not_that_of_another_on_which_ranks_computed():
    price = Price(3.0, "USD", "h100")
    gpus = replace(passed(), ledger=Ledger(resource="gpu", allocated_seconds=3600.0, seconds={"compute": 3600.0}))
    reported = RuntimeReport(gpus=("NVIDIA H100 PCIe",))
    assert cost_of(replace(gpus, ran=reported), price) == 3.0
    assert cost_of(replace(gpus, ran=replace(reported, gpus=("NVIDIA L4",))), price) is None
