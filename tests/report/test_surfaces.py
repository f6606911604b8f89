"""One run, told alike everywhere: terminal, comment, page, build server, time series."""

import re
from dataclasses import replace

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from tests.report import records

from gangline.metrics.openmetrics import render_openmetrics
from gangline.report.facts import total_seconds
from gangline.report.run.html import render_html
from gangline.report.run.junit import render_junit
from gangline.report.run.markdown import render_markdown
from gangline.report.run.terminal import one_line, page
from gangline.spec.record import StageInfo
from gangline.spec.run_flags import NOT_FINITE


@pytest.mark.parametrize("name", ["passed", "refused"])
def test_a_curve_that_ends_before_its_training_is_said_to(name):
    record = getattr(records, name)()
    train = StageInfo(state="done", outputs={NOT_FINITE: {record.curve.metric: "nan"}})
    for surface in (page, render_markdown):
        assert "at step 120, not finite at the end" in surface(replace(record, stages=record.stages | {"train": train}))
        assert "not finite" not in surface(record)


@pytest.mark.parametrize("name", ["passed", "refused"])
def test_value_band_verdict_and_plan_are_the_same_on_every_surface(name):
    record = getattr(records, name)()
    metric = record.metrics["eval_loss"]
    surfaces = [page(record), one_line(record), render_markdown(record), render_html(record)]
    for text in surfaces:
        assert re.search(rf"\b{metric.value:g}\b", text)
        assert record.run.verdict in text.lower()
        assert "ddp-2" in text
        assert re.search(r"± ?1\.6 %", text) or "|" in text
    assert f"eval_loss {metric.value:g}" in render_junit(record)


def test_a_gate_that_could_not_judge_is_reported_on_every_surface():
    record = records.passed()
    unjudged = [replace(gate, verdict="unknown") if gate.name == "budget" else gate for gate in record.gates]
    for of, said in (
        (record, "1 gate could not judge"),
        (replace(record, gates=tuple(unjudged)), "2 gates could not judge"),
    ):
        for text in (page(of), one_line(of), render_markdown(of), render_html(of), render_junit(of)):
            assert said in text
    judged = replace(record, gates=tuple(gate for gate in record.gates if gate.verdict == "yes"))
    for text in (page(judged), one_line(judged), render_markdown(judged), render_html(judged), render_junit(judged)):
        assert "could not judge" not in text


def test_time_of_a_run_is_the_same_before_and_after_its_report_was_drawn():
    after = records.passed()
    report = replace(after.stages["report"], state="running", seconds=None)
    before = replace(after, stages={**after.stages, "report": report})
    slow = replace(after, stages={**after.stages, "report": replace(after.stages["report"], seconds=90.0)})
    assert total_seconds(before) == total_seconds(after) == total_seconds(slow) > 0
    (drawn,) = re.findall(r"commit `\w+` · ([^·\n]+)", render_markdown(before))
    assert f"<span>time</span> <b>{drawn}</b>" in render_html(slow)
    assert one_line(slow).endswith(f" · {drawn}")


def test_time_series_hold_the_values_of_the_record():
    record = records.passed()
    families = text_string_to_metric_families(render_openmetrics([record]))
    samples = {s.labels.get("metric"): s.value for f in families for s in f.samples if s.name == "gangline_eval_value"}
    assert samples == {name: metric.value for name, metric in record.metrics.items()}


def test_a_useful_share_that_no_rank_reported_is_unknown_everywhere():
    record = records.passed()
    record = replace(record, ledger=replace(record.ledger, seconds={"other": record.ledger.allocated_seconds}))
    assert "useful share unknown" in page(record)
    assert "**useful share** unknown · **lost** an unknown share of" in render_markdown(record)
    assert '"useful share" value="unknown"' in render_junit(record)
    assert "<span>useful share</span> <b>unknown</b> <small>effective time unknown" in render_html(record)


def test_memory_of_a_process_is_not_put_next_to_a_forecast_of_tensors():
    on_cpu = records.passed()
    on_gpu = replace(on_cpu, plan=replace(on_cpu.plan, device="cuda"))
    row = r">measured</th>\s*(?:<td.*?</td>\s*){2}<td class=\"num\">%s</td>"
    assert "414 MB a rank's whole process" in page(on_cpu)
    assert re.search(row % "-", render_html(on_cpu), re.S)
    assert "process held 414 MB at its peak" in render_html(on_cpu)
    assert "414 MB a rank\n" in page(on_gpu)
    assert re.search(row % "414 MB", render_html(on_gpu), re.S)
    assert "process held" not in render_html(on_gpu)


def test_what_is_pinned_is_shown_item_by_item_and_odd_evidence_is_left_out():
    reported = [{"name": "data", "pinned": "unknown", "by": "none declared"}, {"name": "x", "pinned": "maybe"}, 7]
    gates = [replace(each, evidence={"items": reported}) for each in records.passed().gates]
    record = replace(records.passed(), gates=tuple(gates))
    for text in (page(record), render_markdown(record), render_html(record)):
        assert "none declared" in text
        assert "maybe" not in text
