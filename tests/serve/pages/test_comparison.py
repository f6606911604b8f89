"""The comparison: who is held against whom, marks by band and not by noise, only rows that differ."""

import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.report import records
from tests.serve.pages import samples
from tests.serve.pages.samples import MAINTAINER, family
from tests.serve.pages.test_runs import text_of

from gangline.errors import UsageError
from gangline.serve.pages import render_compare
from gangline.serve.pages.comparison import best_places
from gangline.serve.pages.curve_overlay import DASHES, at_step, departure, overlay, spread, style_of
from gangline.spec.measurements import Band, Curve, CurvePoint, Metric
from gangline.spec.program_files import RuntimeReport, UndeclaredRead

BAND = Band(center=10.0, half=1.0, n=3, origin="r")


def page_of(runs, **options) -> str:
    return render_compare(runs, principal=MAINTAINER, **options)


def metrics(*values: float | None) -> list[Metric | None]:
    return [None if value is None else Metric(value=value, better="lower") for value in values]


def samples_of_reads(*digests):
    """Two attempts of a run that read the same undeclared file, at two times, with these digests of its content."""
    base = records.passed()
    for number, sha256 in enumerate(digests, start=1):
        read = UndeclaredRead(path="/d/labels.txt", size_bytes=2, mtime_ns=number, ctime_ns=number, sha256=sha256)
        run = replace(base.run, id=f"{base.run.id}{number}", attempt=number)
        yield replace(base, run=run, ran=RuntimeReport(reads=(read,), num_reads=1))


def letters(page: str) -> list[str]:
    """Run ids of the legend, in its order."""
    legend = re.search(r'<table class="legend">.*?</table>', page, re.S)[0]
    return re.findall(r'class="name"><a href="/runs/([^"]+)"', legend)


@pytest.mark.parametrize("count", [0, 1, 11])
def test_fewer_than_two_and_more_than_ten_are_refused_with_the_bounds(count):
    with pytest.raises(UsageError, match=f"takes 2 to 10 runs, {count} were named"):
        page_of(family(11)[:count])


def test_the_oldest_run_that_learned_a_band_is_what_the_others_are_held_against():
    base, *others = family(4)
    older = replace(others[0], run=replace(others[0].run, created="2020-01-01T00:00:00Z"))
    assert letters(page_of([others[2], older, base]))[0] == base.run.id
    assert letters(page_of([others[2], older]))[0] == older.run.id
    assert letters(page_of([others[2], older, base], reference=others[2].run.id))[0] == others[2].run.id


def test_every_run_has_its_outcome_and_says_why_it_cannot_be_compared():
    said = text_of(page_of(family(10)))
    assert "NOT COMPARABLE the data differ" in said
    assert "NOT COMPARABLE" in said
    assert "WORSE eval_loss outside the band" in said
    assert "SAME eval_loss within the band" in said


@pytest.mark.parametrize(
    ("values", "marked"),
    [
        ((10, 12, 14), {0}),
        ((10, 10.9, 14), {0, 1}),
        ((10, 10.2, 9.8), set()),
        ((14, None, 10), {2}),
        ((10, None), set()),
    ],
)
def test_best_are_all_that_no_band_separates_from_the_best(values, marked):
    assert best_places(metrics(*values), BAND, "lower") == marked


def test_run_that_cannot_be_compared_is_shown_and_not_judged():
    base, one, other_data, *_ = family(5)
    table = re.search(r'aria-label="Metrics">.*?</table>', page_of([base, one, other_data]), re.S)[0]
    cells = re.findall(r'<td class="num ([^"]*)"><b>([^<]+)</b>', table[table.index(">eval_loss ") :])
    assert cells == [("s-unknown", "2.375 nats"), ("s-better best", "2.304 nats"), ("s-unknown", "2.328 nats")]


def test_without_a_band_or_a_direction_nothing_is_best():
    assert best_places(metrics(1, 2), None, "lower") == set()
    assert best_places(metrics(1, 2), BAND, None) == set()


def test_only_rows_that_differ_are_shown():
    differs = re.search(r'<table class="matrix differs">.*?</table>', page_of(family(5)), re.S)[0]
    assert "model.width" in differs
    assert "train.steps" not in differs
    assert ">data<" in differs
    assert "as A" in differs


def test_equal_runs_differ_in_nothing():
    base = records.passed()
    twin = replace(base, run=replace(base.run, id="bytegpt-9f31c2a0-aaaaaa", attempt=2))
    assert "nothing changed: same line, code, environment, data and plan" in page_of([base, twin])


def test_runs_that_read_undeclared_files_differ_in_them_or_may_have_changed_unseen():
    base, twin = samples_of_reads("a" * 64, "b" * 64)
    assert "/d/labels.txt 2 B, aaaaaaaa 2 B, bbbbbbbb" in text_of(page_of([base, twin]))
    base, twin = samples_of_reads("", "")
    said = text_of(page_of([base, twin]))
    assert "nothing that records have changed: same line, code, environment, plan and declared data" in said
    assert "may have changed, too: data: read /d/labels.txt" in said


def test_a_run_can_become_the_first_or_be_left_out():
    page = page_of(family(3))
    ids = letters(page)
    assert f'href="/compare?run={ids[0]}&amp;run={ids[1]}&amp;run={ids[2]}&amp;reference={ids[1]}"' in page
    assert f'href="/compare?run={ids[0]}&amp;run={ids[2]}&amp;reference={ids[0]}"' in page
    assert "leave out" not in page_of(family(2))


def test_ten_lines_are_distinguished_by_more_than_colour():
    styles = [style_of(place) for place in range(10)]
    assert len({(style.color, style.dash) for style in styles}) == 10
    assert [style.letter for style in styles] == list("ABCDEFGHIJ")
    assert len({style.dash for style in styles}) <= len(DASHES)
    chart = overlay(family(10))
    assert re.findall(r">([A-J])</text>", chart.ends) == sorted(
        re.findall(r">([A-J])</text>", chart.ends), key=lambda letter: _height(chart.ends, letter)
    )
    assert chart.band == "A"


def _height(drawing: str, letter: str) -> float:
    return float(re.search(rf'y="([\d.]+)"[^>]*>{letter}</text>', drawing)[1])


def test_departure_is_zero_for_the_first_and_in_percent_for_the_others():
    chart = departure(family(4))
    first = re.findall(r'<polyline points="([^"]+)"', chart.svg)[-1]
    assert len({place.split(",")[1] for place in first.split()}) == 1
    assert "percent above or below A" in chart.title


def test_runs_without_curves_are_counted_not_drawn():
    base, other, *_ = family(3)
    assert overlay([replace(base, curve=Curve()), replace(other, curve=Curve())]) is None
    assert departure([replace(base, curve=Curve()), other]) is None
    assert overlay([base, replace(other, curve=Curve())]).drawn == 1


@given(heights=st.lists(st.floats(0, 280), min_size=1, max_size=10).map(sorted))
def test_letters_never_cover_each_other_and_stay_inside(heights):
    moved = spread(heights, gap=15, last=280)
    assert all(after - before >= 15 - 1e-9 for before, after in pairwise(moved))
    assert moved[0] >= 0
    assert moved[-1] <= 280


@given(
    steps=st.lists(st.integers(1, 10_000), min_size=2, max_size=64, unique=True).map(sorted),
    step=st.integers(0, 11_000),
    data=st.data(),
)
def test_value_at_any_step_is_that_of_numpys_interpolation(steps, step, data):
    values = [data.draw(st.floats(-100, 100)) for _ in steps]
    points = [CurvePoint(step=each, value=value) for each, value in zip(steps, values, strict=True)]
    assert at_step(points, step) == pytest.approx(float(np.interp(step, steps, values)), abs=1e-9)


def test_tricky_names_do_not_leave_their_cells():
    assert "<script>window" not in page_of([samples.tricky(), records.passed()])


def test_a_run_that_does_not_represent_its_commit_is_marked_and_a_verdict_says_what_no_one_judged():
    first, second, *_ = family(2)
    apart = replace(second, inputs=replace(second.inputs, overrides=("train.steps=1",)))
    assert '<span class="tag">experiment' in page_of([first, apart])
    assert '<span class="tag">experiment' not in page_of([first, second])
    assert "passed, 1 gate could not judge" in text_of(page_of([records.passed(), apart]))
