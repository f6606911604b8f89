"""Profiles on a page and in a terminal: everything that was found is there, nothing acts."""

import pytest
from tests.report.browser import CHROMIUM, Browser

from gangline.report.profile import duration, render_profile, render_profile_page
from gangline.spec.gang.profiling import Operator, ProfiledStep, ProfileSummary

HOSTILE = "<script>alert(1)</script>"


def summary(rank, *, name="aten::mm", trace="rank-0.trace.json.gz"):
    lane = tuple((n % 7) / 7 for n in range(240))
    return ProfileSummary(
        rank=rank, node="node-a", first=10, last=12, device="cpu", seconds=0.9,
        steps=tuple(ProfiledStep(step=10 + n, start=0.3 * n, seconds=0.3) for n in range(3)),
        categories={"matmul": 0.5, "communication": 0.1, "idle": 0.3}, busy_share=0.5, exposed_share=0.1 * (rank + 1),
        idle_share=0.3, top=(Operator(name=name, category="matmul", count=9, self_seconds=0.4, total_seconds=0.5),),
        lanes={"matmul": lane, "communication": lane}, memory=tuple((n / 100, 1e6 * (n % 9)) for n in range(90)),
        peak_bytes=8_000_000, trace=trace, trace_bytes=1_200_000,
    )  # fmt: skip


@pytest.mark.parametrize("width", [72, 80, 120])
def test_terminal_shows_each_rank_within_its_width(width):
    text = render_profile("10-12", [summary(0), summary(1)], width=width)
    lines = text.splitlines()
    assert lines[0] == "steps 10 to 12 · 2 ranks · time of the CPU"
    assert "rank 1, longest by their own time" in text
    assert any(line.split()[:2] == ["1", "communication"] for line in lines)
    assert max(map(len, lines)) <= width


def test_page_is_small_whole_and_the_same_each_time():
    page = render_profile_page("r", "10-12", [summary(0), summary(1)], {0: "10-12/rank-0.trace.json.gz"})
    assert page == render_profile_page("r", "10-12", [summary(0), summary(1)], {0: "10-12/rank-0.trace.json.gz"})
    assert len(page) < 200_000
    assert "10-12/rank-0.trace.json.gz" in page
    assert "step 11: 300.0 ms" in page
    assert "gangline profile r --out profile/" in page


def test_a_trace_that_was_not_kept_is_reported():
    assert "too large to keep" in render_profile_page("r", "10-12", [summary(0, trace=None)])


def test_names_of_operators_stay_text():
    page = render_profile_page("r", "10-12", [summary(0, name=HOSTILE)])
    assert "<script" not in page
    assert "alert(1)" in page
    assert "<script" not in render_profile("10-12", []) + page


def test_many_ranks_are_not_all_drawn():
    page = render_profile_page("r", "10-12", [summary(rank) for rank in range(40)])
    assert "24 more ranks are not drawn" in page


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
def test_a_browser_shows_it_without_a_complaint(tmp_path):
    path = tmp_path / "page.html"
    path.write_text(render_profile_page("r", "10-12", [summary(0)]), "utf-8")
    browser = Browser()
    try:
        browser.show(path, width=900, dark=True)
        complaints = [e for e in browser.events if e.get("method") in {"Log.entryAdded", "Runtime.exceptionThrown"}]
        assert complaints == []
        assert browser.value("document.querySelectorAll('svg.lane').length") == 2
        assert browser.value("document.documentElement.scrollWidth <= 900")
    finally:
        browser.close()


@pytest.mark.parametrize(("seconds", "text"), [(2e-6, "2 µs"), (0.0123, "12.3 ms"), (2.0, "2.0 s")])
def test_durations_are_short(seconds, text):
    assert duration(seconds) == text
