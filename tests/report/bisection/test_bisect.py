"""An answer of a search in words: how it ended, what it rests on, what was odd."""

from dataclasses import replace

import pytest
from tests.report.browser import CHROMIUM, Browser

from gangline.report.bisection.pages import render_html_bisection, render_markdown_bisection
from gangline.report.bisection.text import Culprit, history_strip, render_bisection
from gangline.report.comparison.types import FileChange
from gangline.spec.bisect import BisectCommit, BisectState

HOSTILE = "<script>alert(1)</script> $(reboot) @everyone"


def state(ending="found", *, length=12, first_bad=7):
    def suspect(number):
        known = number in {0, first_bad - 1, first_bad, length - 1}
        side = "unknown" if not known else "good" if number < first_bad else "bad"
        values = {"1": 2.0 + (number >= first_bad), "2": 2.1 + (number >= first_bad)} if known else {}
        return BisectCommit(
            sha=f"{number:08d}" * 5, subject=f"{HOSTILE} {number}", side=side, values=values,
            seconds=10.0 if known else 0.0, origin="trained" if known else "",
        )  # fmt: skip

    suspects = tuple(map(suspect, range(length)))
    return BisectState(
        id="p-bisect-aaaaaa", project="p", metric="eval_loss", at=60, steps=120, better="lower", seeds=2, error=0.05,
        suspects=suspects, ending=ending, first_bad=suspects[first_bad].sha if ending == "found" else None,
    )  # fmt: skip


@pytest.mark.parametrize("width", [72, 80, 120])
@pytest.mark.parametrize("ending", ["found", "between", "same", "budget", None])
def test_every_ending_is_reported_within_the_width(ending, width):
    text = render_bisection(state(ending), Culprit(files=(FileChange(path="a.py", added=1, removed=2),)), width=width)
    assert max(map(len, text.splitlines())) <= width
    assert "<script" in text.splitlines()[0] or ending != "found"
    assert "4 of 12 commits measured, 4 by training: 40 s of rank time" in text


def test_words_follow_the_ending():
    assert render_bisection(state()).startswith("FOUND  00000007")
    assert "eval_loss at step 60 of 120: 2.05 is good, 3.05 bad · wrong at most 5.0 % of the time" in render_bisection(
        state()
    )
    shorter = replace(state("same"), at=10, steps=10, end_steps=(20, 10))
    assert "eval_loss at step 10 of trainings of 20 and 10 steps: 2.05 is good" in render_bisection(shorter)
    assert "next  gangline diff 00000000 00000011" in render_bisection(shorter)
    assert "a larger --budget continues" in render_bisection(state("budget"))
    assert "--seeds 4" in render_bisection(state("same"))
    swapped = replace(state("unfit"), notes=("eval_loss is better at the bad end, but lower values are better",))
    assert render_bisection(swapped).startswith("NO SEARCH  eval_loss is better at the bad end")
    assert "next  gangline diff 00000000 00000011" in render_bisection(swapped)
    for unreported, asked_at, reported in (
        (False, 60, "gangline run --commit 00000000"),
        (True, 60, "gangline bisect eval_loss --good 00000000 --bad 00000011"),
        (True, None, "another end or metric: 00000000 trains, and does not report eval_loss"),
    ):
        end = replace(swapped.suspects[0], reason="it has 0 of 2 values of eval_loss", unreported=unreported)
        ends = replace(swapped, suspects=(end, *swapped.suspects[1:]), asked_at=asked_at)
        assert render_bisection(ends).endswith(f"next  {reported}")
    assert "**no search**" in render_markdown_bisection(swapped)
    assert "1 commits" not in render_bisection(state("budget"))


def test_the_strip_shows_what_is_known_however_long_the_history_is():
    assert history_strip(state()) == "✓·····✓✗···✗"
    long = history_strip(state(length=5000, first_bad=2500), 60)
    assert len(long) == 60
    assert (long[0], long[-1]) == ("✓", "✗")
    assert long.count("✗") == 2


def test_what_strangers_wrote_acts_nowhere():
    page = render_html_bisection(state(), Culprit(patch=f"+{HOSTILE}\n"))
    assert "<script" not in page
    text = render_markdown_bisection(state())
    assert "<script" not in text
    assert "@everyone" not in text


def test_a_long_difference_is_cut_and_says_so():
    page = render_html_bisection(state(), Culprit(patch="+line\n" * 1000))
    assert "600 more lines: git show prints all" in page
    assert len(page) < 200_000


def test_notes_and_what_cannot_be_asked_are_shown():
    odd = state("between")
    skipped = replace(odd.suspects[3], side="skipped", reason="it does not build")
    odd = replace(odd, suspects=(*odd.suspects[:3], skipped, *odd.suspects[4:]), notes=("it turned twice",))
    text = render_bisection(odd)
    assert "! it turned twice" in text
    assert "it does not build" in text
    assert "~" in history_strip(odd)


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
def test_a_browser_shows_it_without_a_complaint(tmp_path):
    path = tmp_path / "page.html"
    path.write_text(render_html_bisection(state(), Culprit(patch="@@ -1 +1 @@\n-a\n+b\n")), "utf-8")
    browser = Browser()
    try:
        browser.show(path, width=390, dark=False)
        complaints = [e for e in browser.events if e.get("method") in {"Log.entryAdded", "Runtime.exceptionThrown"}]
        assert complaints == []
        assert browser.value("document.documentElement.scrollWidth <= 390")
    finally:
        browser.close()
