"""The list: rows, queue, filters that keep their state, paging, what is said where nothing is."""

import re
from dataclasses import replace

import pytest
from tests.report import records
from tests.serve.pages import samples
from tests.serve.pages.samples import NOW, list_page, row

from gangline.serve.database.types import Order, Principal, RunFilter
from gangline.serve.pages.runs import draw_history
from gangline.serve.runs.index_row import row_of


def text_of(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def test_row_shows_verdict_metric_against_its_base_and_side():
    said = text_of(list_page(rows=[row(3, side="worse", value=2.52, base=2.369, verdict="refused")]))
    assert "✗ refused" in said
    assert "eval_loss 2.52 ✗ +6.4 % against 2.369" in said


def test_waiting_run_says_in_one_sentence_who_holds_what():
    assert "waits: 8 of 8 GPUs are held by vision-77aa01bc-q1aaaa" in text_of(list_page())


@pytest.mark.parametrize(("record", "stage"), [(records.failed(), "train"), (records.refused(), "gate")])
def test_row_of_a_run_that_failed_names_the_stage(record, stage):
    assert f'<td class="stage">{stage}</td>' in list_page(rows=[row_of(record)])
    assert '<td class="stage"></td>' in list_page(rows=[row_of(records.passed())])


def test_open_run_shows_its_age_an_ended_one_what_its_stages_took():
    page = list_page(rows=[row(0, state="open", verdict="open", stage="train", created=samples.iso(samples.NOW - 75))])
    assert re.search(r'class="num took">1 min 15 s</td>', page)
    assert re.search(r'class="num took">15 min 1 s</td>', list_page(rows=[row(1)]))


def test_queue_reports_turns_why_one_is_parked_and_what_needs_a_person_first():
    said = text_of(list_page())
    assert "1st in line" in said
    assert "2nd in line" in said
    assert "no room: 8 GPUs wanted, 3 free · tried again in 1 min 35 s · 2 tries so far" in said
    assert said.index("quarantined old") < said.index("parked big") < said.index("1st in line main")
    assert "done-long-ago" not in said


def test_form_keeps_what_was_asked_for_and_links_keep_it_too():
    wanted = RunFilter(project="bytegpt", branch="main", verdict="refused", commit="9f31", pull_request=7, text="a b")
    page = list_page(wanted=wanted, next_page="c1")
    for kept in ('value="main"', 'value="9f31"', 'value="7"', 'value="a b"', "<option selected>refused</option>"):
        assert kept in page
    older = re.search(r'rel="next" href="([^"]+)"', page)[1].replace("&amp;", "&")
    assert older == "/runs?project=bytegpt&branch=main&verdict=refused&commit=9f31&pull_request=7&text=a+b&cursor=c1"


def test_counts_are_of_the_chosen_project_and_filter_by_a_click():
    page = list_page(wanted=RunFilter(project="bytegpt"))
    assert re.search(r'href="/runs\?project=bytegpt&amp;verdict=passed".*?<b>812</b>', page)
    assert re.search(r'href="/runs\?verdict=passed".*?<b>852</b>', list_page())
    chosen = re.search(r'<a [^>]*href="/runs"[^>]*aria-current="true">', list_page(wanted=RunFilter(verdict="passed")))
    assert chosen, "a second click takes the filter away"


def test_empty_list_reports_the_next_command_and_a_narrow_filter_the_way_out():
    assert "gangline run" in text_of(list_page(rows=[], orders=[]))
    assert "No run matches" in text_of(list_page(rows=[], orders=[], wanted=RunFilter(text="zzz")))


@pytest.mark.parametrize(("before", "polls"), [(None, True), (("2026-01-01T00:00:00Z", "r"), False)])
def test_only_the_newest_page_with_something_open_renews_itself(before, polls):
    assert ("data-poll" in list_page(wanted=RunFilter(before=before))) == polls
    assert "data-poll" not in list_page(rows=[row(3)], orders=[])


def test_name_and_roles_of_who_looks_are_shown_as_text():
    page = list_page(principal=Principal(name="<b>x", roles={"*": "admin", "a": "reader"}))
    assert "&lt;b&gt;x" in page
    assert 'title="admin of every project. reader of a. "' in page


def test_history_draws_the_metric_that_most_rows_have_oldest_first():
    history = draw_history([*samples.rows(20), row(99, metric="accuracy", value=0.5)])
    assert (history.project, history.metric, history.runs) == ("bytegpt", "eval_loss", 18)
    order = re.findall(r'href="/runs/([^"]+)"', history.svg)
    assert order == [each.run for each in reversed(samples.rows(20)[2:])]


def test_history_draws_runs_that_do_not_represent_their_commit_pale_and_off_the_line():
    rows = [row(number) for number in range(1, 6)]
    plain, marked = draw_history(rows), draw_history([replace(rows[0], marks="experiment"), *rows[1:]])
    assert "(experiment)" in marked.svg
    assert "(experiment)" not in plain.svg
    assert 'class="f-faint"' in marked.svg
    line = re.compile(r'points="([^"]+)"')
    assert len(line.search(plain.svg)[1].split()) == 1 + len(line.search(marked.svg)[1].split())


def test_history_needs_three_finite_values():
    assert draw_history([row(1), row(2)]) is None
    assert draw_history([row(1), row(2), row(3, value=float("nan"))]) is None
    assert draw_history([]) is None


def test_a_commit_whose_line_does_not_hold_says_so_in_the_list():
    refused = Order(
        id=9, project="bytegpt", ref="refs/heads/main", branch="main", state="done", note="line.toml: <b>", created=NOW
    )
    page = list_page(orders=[refused])
    assert "not built" in text_of(page)
    assert "line.toml: &lt;b&gt;" in page
