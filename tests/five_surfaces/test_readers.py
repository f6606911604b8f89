"""Readers of surfaces agree on one record, and notice a single digit that is off."""

import re
from dataclasses import replace
from functools import partial

import pytest
from tests.five_surfaces.readers import (
    disagreements,
    read_comment,
    read_html,
    read_junit,
    read_pipeline,
    read_terminal,
)
from tests.report import records

from gangline.kfp.run_stage import run_numbers
from gangline.report.run.html import render_html
from gangline.report.run.junit import render_junit
from gangline.report.run.markdown import render_markdown
from gangline.report.run.terminal import page
from gangline.serve.database.types import Principal
from gangline.serve.pages import render_run
from gangline.spec.forecast import Forecast
from gangline.spec.measurements import Metric

METRIC = "eval_loss"


def made(name, *, forecast=True):
    """A record judged on a base's band, with the measured step among its metrics as a line leaves it."""
    record = getattr(records, name)()
    metric = record.metrics[METRIC]
    metrics = {
        METRIC: replace(metric, base_band=metric.base_band or metric.band),
        "step_seconds": Metric(value=record.plan.measured.step_seconds, unit="s", better="lower"),
    }
    plan = record.plan if forecast else replace(record.plan, forecast=Forecast())
    return replace(record, metrics=metrics, plan=plan)


def surfaces(record):
    person = Principal(name="ann", roles={"*": "admin"})
    shown = render_run(record, base=None, principal=person, live=False, now=0.0)
    return {
        "terminal": (read_terminal, page(record)),
        "comment": (read_comment, render_markdown(record)),
        "junit": (read_junit, render_junit(record)),
        "pipeline": (partial(read_pipeline, run_numbers(record)), render_markdown(record)),
        "report": (read_html, render_html(record)),
        "page": (read_html, shown),
    }


def read_all(found):
    return {name: read(text, METRIC) for name, (read, text) in found.items()}


@pytest.mark.parametrize("name", ["passed", "refused"])
@pytest.mark.parametrize("known", [True, False], ids=["forecast", "no forecast"])
def test_every_surface_says_the_same_of_a_record(name, known):
    seen = read_all(surfaces(made(name, forecast=known)))
    assert disagreements(seen) == []
    assert seen["comment"].verdict == name


@pytest.mark.parametrize("surface", ["terminal", "comment", "junit", "report", "page"])
@pytest.mark.parametrize(
    ("was", "now", "fact"),
    [
        (r"\b2\.52\b", "2.53", "value"),
        (r"\b2\.369\b", "2.368", "center"),
        (r"1\.6 %", "1.5 %", "half"),
        (r"(?i)\brefused\b", "passed", "verdict"),
        (r"\bddp-2\b", "ddp-3", "plan"),
        (r"\b74 ms\b", "75 ms", "step"),
        (r"\b79 %", "78 %", "useful"),
    ],
)
def test_one_digit_that_is_off_on_one_surface_is_named(surface, was, now, fact):
    found = surfaces(made("refused"))
    read, text = found[surface]
    doctored, count = re.subn(was, lambda found: now.upper() if found[0].isupper() else now, text)
    assert count, text[:3000]
    (said,) = disagreements(read_all(found | {surface: (read, doctored)}))
    assert said.startswith(f"{surface}: {fact} {now.lower()}, not ")


@pytest.mark.parametrize("name", [METRIC, f"{METRIC}_band_center", f"{METRIC}_band_half", "step_seconds"])
def test_one_number_that_a_pipeline_logs_otherwise_is_named(name):
    record = made("refused")
    found = surfaces(record)
    doctored = {**run_numbers(record), name: run_numbers(record)[name] * 1.05}
    found["pipeline"] = (partial(read_pipeline, doctored), found["pipeline"][1])
    said = disagreements(read_all(found))
    assert said
    assert all(each.startswith("pipeline: ") for each in said)


def test_a_gate_that_is_answered_otherwise_on_one_surface_is_named():
    found = surfaces(made("refused"))
    read, text = found["comment"]
    found["comment"] = (read, text.replace("✓ budget", "✗ budget"))
    (said,) = disagreements(read_all(found))
    assert said.startswith("comment: gates ")
