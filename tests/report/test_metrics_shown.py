"""Metrics of a run: what its gates judge comes first, and the settings that a metrics file holds are folded."""

from dataclasses import replace

from tests.report import records

from gangline.report.facts import headline, metric_order, shown_metrics
from gangline.report.run.html import render_html
from gangline.report.run.markdown import render_markdown
from gangline.report.run.terminal import page
from gangline.spec.measurements import Metric
from gangline.spec.record import Gate

SETTINGS = {f"dataloader.{number:02}": Metric(value=float(number)) for number in range(40)}


def with_metrics(*gated):
    gates = tuple(Gate(name=f"quality:{name}", verdict="yes", reason="") for name in gated)
    metrics = {**SETTINGS, "zero_shot": Metric(value=0.5), "loss": Metric(value=2.5)}
    return replace(records.passed(), metrics=metrics, gates=gates)


def test_gated_metrics_are_first_and_those_of_inner_tables_last():
    record = with_metrics("zero_shot", "dataloader.07")
    assert metric_order(record)[:4] == ["zero_shot", "dataloader.07", "loss", "dataloader.00"]
    assert headline(record).name == "zero_shot"
    assert headline(with_metrics()).name == "loss"


def test_each_page_shows_a_few_and_folds_the_others():
    record = with_metrics("zero_shot")
    first, others = shown_metrics(record)
    assert ([row.name for row in first], len(others)) == (["zero_shot", "loss"], 40)
    assert f"and 40 more: gangline show {record.run.id} --json" in page(record)
    assert "dataloader.39" not in page(record)
    for text in (render_html(record), render_markdown(record)):
        before, folded, after = text.partition("40 more metrics</summary>")
        assert folded
        assert "dataloader.39" in after
        assert "dataloader.39" not in before
    many = with_metrics(*SETTINGS)
    assert len(shown_metrics(many)[0]) == 40, "all that gates judge"
    settings = replace(record, metrics=SETTINGS, gates=())
    assert len(shown_metrics(settings)[0]) == 12, "there is nothing else"
