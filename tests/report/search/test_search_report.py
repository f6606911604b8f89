"""A search as page, text and markdown: what it says, what it does not know, and text that means harm."""

import re
from dataclasses import replace

import pytest
from tests.report import searches
from tests.report.browser import CHROMIUM, Browser
from tests.report.test_browser import WIDER
from tests.serve.pages.test_browser import CONTRAST

from gangline.report.search.pages import MOST_LINES, render_html_search, render_markdown_search
from gangline.report.search.text import other_trials, render_search, repeat_commands, rung_rows
from gangline.spec.search import Trial

HOSTILE = searches.hostile()


@pytest.mark.parametrize("name", sorted(searches.VIEWS))
def test_equal_searches_give_equal_bytes(name):
    for render in (render_html_search, render_search, render_markdown_search):
        assert render(searches.VIEWS[name]()) == render(searches.VIEWS[name]())


def test_a_page_says_what_was_found_what_it_cost_and_how_to_repeat_it():
    page, view = render_html_search(searches.answered()), searches.answered()
    best = view.trials[view.answer.trial]
    for words in (
        f"trial {best.number} on 3 fresh seeds: 2.321 against 2.371 ± 0.6 %", "BETTER", "12.4 GPU-h, at most 24 GPU-h",
        "tpe, halving at 200 600 1,800, judged by loss", "by fANOVA", "exit 31: loss is not finite",
        "Kueue, 8 GPUs of team-a ahead", f"gangline search apply {searches.ID}", "taken from an earlier run",
    ):  # fmt: skip
        assert words in page, words
    assert page.count("<polyline") == 40 + 2  # each trial through its settings; best so far and the base


def test_commands_give_the_settings_back_as_they_were():
    view = searches.answered()
    view = replace(view, request=replace(view.request, overrides=('model.name="a b"',)))
    settings = view.trials[view.answer.trial].settings
    [run] = [each for each in repeat_commands(view) if each.startswith("gangline run")]
    assert "--set 'model.name=\"a b\"'" in run
    assert f"--set {searches.LR}={settings[searches.LR]!r}" in run


def test_what_is_not_known_is_unknown_and_never_zero():
    text = render_search(searches.front())
    assert "matters most: unknown: too few trials have ended" in text
    page = render_html_search(replace(searches.answered(), importance={}, spent_money=None))
    assert "Unknown: too few trials have ended." in page
    assert "EUR" not in page
    row = next(row for row in page.split("<tr") if "Kueue, 8 GPUs" in row)
    assert row.count("unknown") >= 2  # its value and its time
    silent = replace(searches.answered(), trials=tuple(replace(each, step=0) for each in searches.answered().trials))
    row = next(row for row in render_html_search(silent).split("<tr") if ">best<" in row)
    assert "unknown" in row, "a program that reports no steps has trained some"
    assert "no trial of 0 has a value" in render_search(searches.empty())
    assert rung_rows(searches.empty())[0] == (200, 0, 0, None)


def test_many_trials_are_cut_and_the_cut_is_said():
    view = searches.answered()
    many = tuple(replace(view.trials[number % 40], number=number) for number in range(300))
    page = render_html_search(replace(view, trials=many))
    assert f"{MOST_LINES} trials through their settings" in page
    assert "240 more trials" in page


def test_trials_without_a_value_come_last_with_the_furthest_first():
    trials = [Trial(number=n, state="pruned", settings={}, step=n * 10) for n in range(3)]
    assert [each.number for each in other_trials(replace(searches.empty(), trials=tuple(trials)))] == [2, 1, 0]


def test_hostile_text_is_text():
    page, text, markdown = (f(HOSTILE) for f in (render_html_search, render_search, render_markdown_search))
    assert "<script" not in page
    for shown in (page, text, markdown):
        assert not re.search("[\x1b\u202e]", shown)
    assert "@admin" not in markdown
    assert "<script" not in markdown
    change = render_markdown_search(searches.answered(), line=("a = 1\n", "a = '```\n# @x'\n"))
    assert change.count("```") == 2


def test_the_change_of_the_line_is_a_block_of_its_own():
    text = render_markdown_search(searches.answered(), line=("lr = 1 # why\nb = 2\n", "lr = 3 # why\nb = 2\n"))
    assert "```diff\n--- line.toml\n+++ line.toml\n@@ -1,2 +1,2 @@\n-lr = 1 # why\n+lr = 3 # why\n b = 2\n```" in text


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the PATH")
def test_pages_fit_three_widths_in_light_and_dark(tmp_path):
    browser = Browser()
    for name in ("answered", "hostile", "front"):
        page = tmp_path / f"{name}.html"
        page.write_text(render_html_search(searches.VIEWS[name]()))
        for width, dark in ((1300, False), (768, True), (320, False)):
            browser.show(page, width=width, dark=dark)
            assert browser.value("document.documentElement.scrollWidth") <= width
            assert browser.value(WIDER) == []
            assert browser.value(CONTRAST) == [], (name, width)
            assert browser.complaints() == []
            assert browser.value("window.hacked") is None
    browser.close()
