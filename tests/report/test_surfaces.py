"""One run, told alike everywhere: terminal, comment, page, build server, time series."""

import re

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from tests.report import records

from gangline.metrics.openmetrics import render_openmetrics
from gangline.report.html import render_html
from gangline.report.junit import render_junit
from gangline.report.markdown import render_markdown
from gangline.report.terminal import one_line, page


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


def test_time_series_hold_the_values_of_the_record():
    record = records.passed()
    families = text_string_to_metric_families(render_openmetrics([record]))
    samples = {s.labels.get("metric"): s.value for f in families for s in f.samples if s.name == "gangline_eval_value"}
    assert samples == {name: metric.value for name, metric in record.metrics.items()}
