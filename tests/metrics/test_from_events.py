"""Events of ranks and finals of records say the same as their series."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from tests.report.records import passed

from gangline.metrics.from_events import RankSeries, set_record_series
from gangline.metrics.series_store import SeriesStore

STEP = {
    "event": "step", "rank": 0, "generation": 2, "step": 7, "mono": 1.0, "time": "t", "loss": 2.5,
    "learning_rate": 1e-3, "gradient_norm": 0.7, "samples": 16, "tokens": 2048, "seconds": 0.2, "peak_bytes": 1000,
    "phases": {"data": 0.01, "forward": 0.05, "backward": 0.08, "wait": 0.05, "optimizer": 0.01},
}  # fmt: skip


def values(book):
    return {
        (series.name.removeprefix("gangline_"), *(each for each in key if each)): value
        for series, rows in book.values()
        for key, value in rows.items()
    }


def reported(rank, *events, by_rank=True):
    book = SeriesStore()
    series = RankSeries("r", rank, book, by_rank=by_rank)
    for event in events:
        series.observe(event)
    return values(book)


def test_a_step_of_rank_zero_reports_the_training_and_the_rank():
    found = reported(0, STEP, {**STEP, "step": 8, "loss": 2.4, "phases": {"wait": 0.07}})
    assert found["train_loss", "r"] == 2.4
    assert found["train_tokens_total", "r"] == 4096
    assert found["train_generation", "r"] == 2
    assert found["rank_step_seconds", "r", "0"] == 0.2
    assert abs(found["rank_wait_ratio", "r", "0"] - 0.35) < 1e-9
    shares = [found["train_step_phase_seconds", "r", "wait", each] for each in ("median", "maximum")]
    assert [round(each, 3) for each in shares] == [0.06, 0.07]


def test_other_ranks_report_themselves_alone():
    found = reported(3, {**STEP, "rank": 3}, {"event": "saved", "rank": 3, "step": 7, "seconds": 1.0, "size_bytes": 5})
    assert {name[0] for name in found} == {"rank_step_seconds", "rank_wait_ratio", "rank_last_step"}


def test_in_a_gang_above_the_limit_no_rank_has_series_of_its_own():
    assert reported(3, {**STEP, "rank": 3}, by_rank=False) == {}


def test_saves_failures_and_non_finite_steps_are_reported():
    saved = {"event": "saved", "step": 6, "size_bytes": 500, "seconds": 2.0, "blocking_seconds": 0.01}
    found = reported(
        0, saved, {"event": "save_failed", "reason": "disk full"}, {"event": "non_finite"}, {"event": "done"}
    )
    assert found == {
        ("checkpoint_last_step", "r"): 6, ("checkpoint_size_bytes", "r"): 500, ("checkpoint_failures_total", "r"): 1,
        ("train_nonfinite_steps_total", "r"): 1,
    }  # fmt: skip


def test_merges_and_refused_pushes_of_a_parameter_server_are_reported():
    merge = {
        "event": "merged", "version": 3, "silent_seconds": 4.0, "ages": [0, 1], "dropped": [7], "refused": {},
        "sent_bytes": 100, "received_bytes": 400,
    }  # fmt: skip
    found = reported(0, merge, {"event": "push_refused", "block": 5, "reason": "another layout"})
    assert found == {
        ("ps_version", "r"): 3, ("ps_worker_silent_seconds", "r"): 4.0, ("ps_push_age", "r"): 0.5,
        ("ps_blocks_total", "r", "merged"): 2, ("ps_blocks_total", "r", "dropped"): 1,
        ("ps_blocks_total", "r", "refused"): 1,
        ("ps_wire_bytes_total", "r", "up"): 100, ("ps_wire_bytes_total", "r", "down"): 400,
    }  # fmt: skip


def test_a_diverged_or_damaged_event_breaks_nothing():
    bad = {"event": "step", "loss": float("nan"), "seconds": "soon", "phases": None, "step": None, "samples": True}
    assert reported(0, bad) == {("train_samples_total", "r"): 0, ("train_tokens_total", "r"): 0,
                            ("train_wire_bytes_total", "r"): 0, ("series_dropped_total", "not_finite"): 1}  # fmt: skip


def test_a_record_reports_stages_ledger_metrics_and_forecast():
    book, record = SeriesStore(), passed()
    set_record_series(book, record)
    found = values(book)
    run = record.run.id
    assert found["run_stage", run, "train", "done"] == 1
    assert found["run_stage", run, "train", "failed"] == 0
    assert found["ledger_seconds_total", run, "compute"] == record.ledger.seconds["compute"]
    assert found["eval_value", run, "eval_loss"] == 2.375
    assert found["band_half", run, "eval_loss"] == 0.0379
    assert [found["run_gate", run, gate] for gate in ("budget", "reproducible", "quality")] == [1, 1, 0]
    assert 0.5 < found["plan_forecast_ratio", run, "step"] < 2
    assert found["plan_forecast_ratio", run, "compute"] == pytest.approx(1.04)
    made = datetime.fromtimestamp(found["run_created_timestamp_seconds", run], UTC)
    assert made == datetime.fromisoformat(record.run.created)
    info = next(key for key in found if key[0] == "run_info")
    assert record.commit.sha in info


def test_a_first_forecast_is_judged_by_its_parts_alone():
    book, record = SeriesStore(), passed()
    plan = replace(record.plan, forecast=replace(record.plan.forecast, origin="rates measured", wire_bytes=100.0))
    set_record_series(book, replace(record, plan=replace(plan, measured=replace(plan.measured, wire_bytes=150.0))))
    reported = {key[2]: value for key, value in values(book).items() if key[0] == "plan_forecast_ratio"}
    assert set(reported) == {"wire", "compute", "communication", "optimizer"}
    assert reported["wire"] == 1.5


def test_of_two_gates_of_a_kind_the_worse_answer_counts():
    book, record = SeriesStore(), passed()
    gates = [replace(record.gates[0], name=f"quality:{n}", verdict=each) for n, each in enumerate(("no", "yes"))]
    set_record_series(book, replace(record, gates=(*gates,)))
    assert values(book)["run_gate", record.run.id, "quality"] == -1


def test_a_record_of_many_ranks_reports_minimum_median_maximum():
    record = passed()
    rows = tuple(replace(record.ranks[0], rank=rank, step_seconds=0.1 + rank / 100) for rank in range(3))
    book = SeriesStore()
    set_record_series(book, replace(record, ranks=rows, plan=replace(record.plan, world_size=1024)))
    found = {key[2]: round(value, 3) for key, value in values(book).items() if key[0] == "rank_step_seconds"}
    assert found == {"minimum": 0.1, "median": 0.11, "maximum": 0.12}


def test_ranks_that_hold_the_gang_up_are_counted_until_they_are_quick_again():
    events = [{"event": "straggler", "slow": 3}, {"event": "straggler", "slow": 5}, {"event": "straggler", "slow": 3}]
    assert reported(0, *events)["train_stragglers", "r"] == 2
    assert reported(0, *events, {"event": "straggler_over", "slow": 3})["train_stragglers", "r"] == 1
