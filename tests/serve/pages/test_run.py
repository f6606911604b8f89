"""One run: what comes first, what is live, who may do what, where things lead."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.report import records
from tests.serve.pages import samples
from tests.serve.pages.samples import MAINTAINER, READER, run_page
from tests.serve.pages.test_runs import text_of

from gangline.report.progress import StageProgress
from gangline.serve.database.types import Principal
from gangline.serve.pages.run import thinned, trace
from gangline.spec.measurements import PHASES, RankOrder

RUNNER = Principal(name="rita", roles={"bytegpt": "runner"})


def test_verdict_and_gates_come_before_everything_else():
    headings = re.findall(r"<h[12][^>]*>(.*?)</h[12]>", run_page(records.refused()), re.S)
    said = [text_of(heading) for heading in headings]
    assert said[:2] == ["narrower", "Gates"]
    assert "✗ refused eval_loss is outside the band" in text_of(run_page(records.refused()))


def test_page_reports_every_part_of_the_record():
    said = text_of(run_page(replace(records.refused(), proof=records.passed().proof)))
    for part in ("Gates", "Loss", "Stages", "Metrics", "Plan", "runner up", "gathers parameters at each step", "Proof",
                 "53 of 53", "Drills", "kill-rank", "Artifacts", "metrics.jsonl", "Reproduce", "gangline run --again",
                 "Difference to the base", "model.width", "Events", "useful share",
                 "outside the band from step"):  # fmt: skip
        assert part in said


def test_stage_graph_marks_what_was_taken_skipped_and_failed():
    page = run_page(records.refused())
    for state, name in (("taken", "build"), ("done", "train"), ("failed", "gate"), ("skipped", "prove")):
        assert re.search(rf'<li class="n-{state}"[^>]*>.*?<b>{name}</b>', page), name
    assert f'<a href="/runs/{records.BASE_RUN}">taken</a>' in page


def test_heat_strip_gives_every_rank_its_shares_and_marks_the_slow_one():
    page = run_page(records.large())
    strip = re.search(r'<table class="strip">.*?</table>', page, re.S)[0]
    assert strip.count("<tr>") == 65
    assert len(re.findall(r'<td class="h\d+( far)?">\d+</td>', strip)) == 64 * (
        len(PHASES) - 1
    )  # no pipeline, no bubble
    assert re.search(r">5 <small>node-5</small></th>.*? far", strip)
    assert "64 of 256 ranks are shown" in page


def test_open_run_is_followed_and_an_ended_one_is_not():
    assert f'data-events="/api/v1/runs/{records.THIS_RUN}/events"' in run_page(samples.running())
    assert "data-events" not in run_page(samples.running(), live=False)
    assert "data-events" not in run_page(records.refused())


def test_what_is_known_of_the_running_stage_is_drawn_at_once():
    page = run_page(samples.running(), progress=samples.progress())
    assert re.search(r'<progress data-bar max="120" value="62"', page)
    assert 'data-losses="4,3.5,3,2.71"' in page
    assert "62/120 loss 2.71" in page


def test_progress_of_an_earlier_stage_is_not_shown_as_now():
    assert "62/120" not in run_page(samples.running(), progress=replace(samples.progress(), stage="evaluate"))


def test_run_that_waits_says_who_holds_what_until_when_and_what_would_start_now():
    said = text_of(run_page(samples.waiting()))
    assert "Why it waits 8 of 8 GPUs are held by vision-77aa01bc-q1aaaa" in said
    assert "until 19:40" in said
    assert "would start now 2 GPUs: ddp-2" in said


def test_run_says_how_its_nodes_lie_in_the_network_and_which_are_elsewhere():
    record = samples.running()
    order = RankOrder(num_groups=2, crossings=2)
    placed = replace(record, gang=replace(record.gang, servers=("a", "b", "c"), order=order))
    assert "a, b, c · 2 groups, crossed 2 times by a ring over the nodes" in text_of(run_page(placed))
    moved = replace(record, gang=replace(record.gang, servers=("a", "b"), order=RankOrder(num_moved=2)))
    assert "a, b · 2 not where the placer put them" in text_of(run_page(moved))
    split = replace(record, gang=replace(record.gang, servers=("a", "b"), order=RankOrder(num_split=1)))
    assert "a, b · 1 tile of the plan not in one group" in text_of(run_page(split))


@pytest.mark.parametrize(
    ("who", "may_cancel", "may_approve"), [(READER, False, False), (RUNNER, True, False), (MAINTAINER, True, True)]
)
def test_forms_are_shown_to_those_who_may_send_them(who, may_cancel, may_approve):
    page = run_page(samples.waiting(), principal=who)
    assert (f'action="/runs/{records.THIS_RUN}/cancel"' in page) == may_cancel
    assert (f'action="/runs/{records.THIS_RUN}/approve"' in page) == may_approve
    assert page.count('name="csrf" value="form-of-session"') == may_cancel + may_approve
    assert "Approve this commit" in page


def test_ended_run_has_no_forms_and_an_asked_one_is_not_asked_again():
    assert "/cancel" not in run_page(records.refused())
    asked = samples.running()
    page = run_page(replace(asked, run=replace(asked.run, cancel_requested="mara: wrong data")))
    assert "/cancel" not in page
    assert "asked to stop: mara: wrong data" in page


def test_only_web_addresses_are_links():
    page = run_page(
        samples.running(links={"jenkins": "https://ci.example/1", "x": "javascript:alert(1)", "report": "runs/x"})
    )
    assert 'href="https://ci.example/1" rel="noopener noreferrer">jenkins</a>' in page
    assert "javascript:" not in page


def test_artifacts_are_downloaded_by_kind_and_digest_never_by_key():
    page = run_page(records.passed())
    sha256 = next(each.sha256 for each in records.passed().artifacts if each.kind == "model")
    assert f'href="/api/v1/runs/{records.BASE_RUN}/artifacts/model?sha256={sha256}" download' in page
    assert not re.search(r'href="[^"]*checkpoints/', page)


@given(values=st.lists(st.floats(-1e6, 1e6), max_size=2000), most=st.integers(2, 300))
def test_thinning_keeps_the_newest_and_its_bound(values, most):
    kept = thinned(values, most)
    assert len(kept) <= most
    assert kept[-1:] == values[-1:]
    assert len(kept) == len(values) or len(kept) > most / 2 - 1


@given(values=st.lists(st.floats(-1e20, 1e20), min_size=2, max_size=50))
def test_trace_stays_in_its_box(values):
    places = [tuple(map(float, place.split(","))) for place in trace(values).split()]
    assert len(places) == len(values)
    assert all(0 <= x <= 640 and 0 <= y <= 64 for x, y in places)


def test_diverged_loss_does_not_flatten_the_trace():
    page = run_page(samples.running(), progress=StageProgress("train", losses=[3.0, 1e35, float("nan"), 2.0]))
    assert 'data-losses="3,2"' in page
