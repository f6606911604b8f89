"""Of every page: well-formed, nothing inline, nothing from elsewhere, tricks shown as text, small enough."""

import re
from dataclasses import replace

import pytest
from tests.report import records
from tests.report.run.test_html import Tags
from tests.serve.pages import samples

from gangline.serve.pages import STATIC, render_compare, render_login, render_problem

PAGES = samples.pages()


@pytest.fixture(params=sorted(PAGES))
def page(request) -> str:
    return PAGES[request.param]


def test_page_is_well_formed_and_holds_nothing_that_the_policy_forbids(page):
    tags = Tags(page)
    assert tags.open == []
    names = {name for name, _ in tags.attributes}
    assert "style" not in names
    assert not any(name.startswith("on") for name in names)
    assert not {"style", "iframe", "object", "embed", "base", "img"} & set(tags.names)
    assert re.findall(r"<script[^>]*>", page) == re.findall(
        r'<script src="/static/live\.js\?v=[0-9a-f]{8}" defer>', page
    )


def test_what_page_loads_or_sends_to_is_its_own_service(page):
    loaded = [v for name, v in Tags(page).attributes if name in ("src", "action", "formaction", "data-events")]
    assert all(url.startswith("/") and not url.startswith("//") for url in loaded)
    linked = [v for name, v in Tags(page).attributes if name == "href"]
    assert all(url.startswith(("/", "#", "https://")) and not url.startswith("//") for url in linked)


def test_no_id_occurs_twice_and_every_field_has_a_name_that_is_read_out(page):
    tags = Tags(page)
    ids = [value for name, value in tags.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    for field in re.findall(r"<(?:input|select)\b[^>]*>", page):
        if 'type="hidden"' not in field and not field.endswith(" hidden>"):
            assert "aria-label=" in field or f'for="{re.search(r"id=.([a-z-]+)", field)[1]}"' in page


def test_tricks_are_text(page):
    assert "<script>window" not in page
    assert not re.search("[\x00-\x08\x1b\u202e\u2066]", page)
    assert page.count("{{ 7*7 }}") == page.count("7*7")
    assert max(map(len, re.findall(r"W+", page)), default=0) <= 400


def test_page_stays_below_200_kilobytes_at_256_ranks_10_000_steps_and_200_events():
    assert len(records.large().events) == 200
    assert len(PAGES["large"].encode()) <= 200_000
    assert len(samples.run_page(records.large(), base=None).encode()) <= 200_000
    assert len(samples.list_page(rows=samples.rows(50)).encode()) <= 200_000
    assert sum(len(body) for _, body in STATIC.values()) <= 60_000


def test_same_record_gives_the_same_page():
    assert samples.run_page(samples.running()) == samples.run_page(samples.running())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e308, -1e308, 0.0, -5.0, 1e-300])
def test_numbers_that_a_forged_record_may_hold_break_no_page(value):
    record = samples.extreme(value)
    lines = [replace(samples.row(i), value=value, base=value, seconds=value) for i in range(5)]
    pages = [
        samples.run_page(record, base=record),
        samples.list_page(rows=lines),
        render_compare([record, replace(record, run=replace(record.run, id="b-2"))], principal=samples.MAINTAINER),
    ]
    for page in pages:
        drawn = " ".join(re.findall(r'(?:points|x|y|width|height|d|viewBox|class)="([^"]*)"', page))
        assert not re.search(r"\b(nan|inf)\b", drawn)


@pytest.mark.parametrize("status", [401, 403, 404, 413, 418, 429, 500, 503])
def test_problem_says_what_happened_and_leads_on(status):
    text = render_problem(status, "wanted this, found that")
    assert "wanted this, found that" in text
    assert 'href="/runs"' in text
    assert ('href="/login"' in text) == (status == 401)


def test_login_keeps_where_it_leads_on_to():
    assert 'value="/runs/a?b=1&amp;c=2"' in render_login(onward="/runs/a?b=1&c=2")
    assert 'type="password"' in render_login()
