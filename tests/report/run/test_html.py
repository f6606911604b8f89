"""The page: complete, byte-stable, without script or outside reference, safe against what records may hold."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from tests.report import records

from gangline.report.run.html import render_html
from gangline.spec.measurements import BrokenSteps
from gangline.spec.record import Record

HOSTILE = (
    "<script>alert(1)</script>\"'><img src=x onerror=y>\x1b[31mred\x1b[0m \u202eevil\u202c {{ 7*7 }} " + "A" * 1_000_000
)
CHANGED = 'model.width</th><td class="wide">128</td><td class="wide">64'
VOID = {"meta", "br", "img", "hr", "input", "link"}


class Tags(HTMLParser):
    """Every tag and attribute, and whether tags close in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        self.attributes += attrs
        if tag not in VOID and not self.get_starttag_text().endswith("/>"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.names.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(params=["passed", "refused", "failed", "bare", "large"])
def record(request) -> Record:
    return getattr(records, request.param)()


def test_every_page_is_well_formed_and_runs_or_loads_nothing(record):
    text = render_html(record, records.passed())
    tags = Tags(text)
    assert tags.open == []
    assert not {"script", "link", "img", "iframe", "object"} & set(tags.names)
    names = {name for name, _ in tags.attributes}
    assert not {"src", "href", "action", "srcset", "style"} & names
    assert not any(name.startswith("on") for name in names)
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org)", text)


def test_steps_that_are_not_finite_are_shown_where_a_curve_is_and_where_none_is():
    record = records.passed()
    broken = (BrokenSteps(first=7, last=7, count=1), BrokenSteps(first=40, last=52, count=4))
    curve = replace(record.curve, broken=broken)
    reported = "not finite at step 7, 4 of steps 40 to 52"
    text = render_html(replace(record, curve=curve))
    assert re.search(rf'role="img" aria-label="[^"]*, {reported}"', text)
    assert f'<span class="key k-red">{reported}</span>' in text
    assert f"<p>{reported}</p>" in render_html(replace(record, curve=replace(curve, points=())))
    assert "not finite" not in render_html(record)


def test_the_same_record_gives_the_same_bytes(record):
    again = Record.from_json(record.to_json())
    assert render_html(again, records.passed()) == render_html(record, records.passed())


def test_the_page_reports_every_part_of_the_record():
    text = render_html(records.refused(), records.passed())
    for said in (
        "refused", "quality:eval_loss", "unchanged since", "outside the band from step", "useful share", "backward",
        "runner up", "gathers parameters at each step", CHANGED, "kill-rank",
        "checkpoint", "gangline run --again", records.BASE_RUN, "53 of 53",
    ):  # fmt: skip
        assert said in text or (said == "53 of 53" and said in render_html(records.passed()))


def test_every_mark_of_a_drawing_has_a_title():
    text = render_html(records.large())
    marks = re.findall(r"<(rect|polygon)\b[^>]*>(<title>)?", text)
    assert len(marks) > 500
    assert all(title for _, title in marks)


def test_hostile_text_is_shown_as_text_and_cut():
    record = records.refused()
    hostile = replace(
        record,
        run=replace(record.run, reason=HOSTILE),
        commit=replace(record.commit, subject=HOSTILE, branch=HOSTILE, changed=(HOSTILE,)),
        gates=tuple(replace(gate, name=HOSTILE, reason=HOSTILE) for gate in record.gates),
        stages={**record.stages, "train": replace(record.stages["train"], message=HOSTILE)},
        metrics={HOSTILE: record.metrics["eval_loss"]},
        ranks=tuple(replace(row, node=HOSTILE) for row in record.ranks),
        events=tuple(replace(event, text=HOSTILE) for event in record.events),
        links={"evil": "javascript:alert(1)"},
    )
    text = render_html(hostile)
    assert Tags(text).open == []
    assert not {"script", "img"} & set(Tags(text).names)
    assert not re.search("[\x1b\u202e]", text)
    assert "49" not in re.findall(r"evil.{0,40}", text)[0]
    assert len(text) < 120_000


def test_a_record_of_256_ranks_and_10_000_steps_is_drawn_within_its_bounds():
    record = records.large()
    assert 100_000 < len(record.to_json()) <= 256 * 1024
    render_html(records.bare())
    text = render_html(record, records.passed())
    assert len(text.encode()) <= 1_500_000


def test_a_curve_that_is_one_point_or_flat_draws_nothing_wrong():
    record = records.passed()
    one = replace(record, curve=replace(record.curve, points=record.curve.points[:1], seed_points={}))
    assert "<figure" not in render_html(one)
    flat = tuple(replace(point, value=1.0) for point in record.curve.points)
    assert (
        "nan" not in render_html(replace(record, curve=replace(record.curve, points=flat))).lower().split("<main>")[1]
    )
