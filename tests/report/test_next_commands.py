"""Next commands after a run: the terminal and the comment give one answer."""

from dataclasses import replace

import pytest
from tests.report import records

from gangline.report.next_commands import bisection, next_of_comment, next_steps
from gangline.report.run.markdown import render_markdown
from gangline.spec.record import RETRAINED, Event

FAILED = records.failed()
BROKEN_LATER = replace(FAILED, stages=records.stages(failed="publish", message="it does not answer", code=30))
REFUSED = records.refused()
SEARCH = f"gangline bisect eval_loss --good {REFUSED.commit.base.commit[:8]} --bad {records.THIS_SHA[:8]}"
DIFFERENCE = f"gangline diff {records.BASE_RUN} {records.THIS_RUN}"


@pytest.mark.parametrize(
    ("record", "first"),
    [
        (REFUSED, SEARCH),
        (FAILED, f"gangline logs {FAILED.run.id} --failed"),
        (BROKEN_LATER, f"gangline report {FAILED.run.id} --open"),
    ],
)
def test_what_explains_the_run_best_comes_first_at_the_terminal_and_alone_in_the_comment(record, first):
    assert next_steps(record)[0] == next_of_comment(record) == first
    assert f"**next** `{first}`" in render_markdown(record)


def test_a_refused_run_names_search_comparison_and_report():
    assert next_steps(REFUSED) == [SEARCH, DIFFERENCE, f"gangline report {records.THIS_RUN} --open"]


def test_undeclared_files_and_odd_names_start_no_search():
    retrained = replace(REFUSED, events=(Event(time="", stage="train", kind=RETRAINED, text="files changed"),))
    odd = replace(
        REFUSED,
        metrics={f"$(id) {name}": metric for name, metric in REFUSED.metrics.items()},
        gates=tuple(replace(gate, name=gate.name.replace(":", ":$(id) ")) for gate in REFUSED.gates),
    )
    assert next_of_comment(retrained) == next_of_comment(odd) == DIFFERENCE


def test_no_comparison_explains_a_metric_that_was_not_reported():
    record = replace(REFUSED, metrics={})
    assert next_steps(record)[0] == "report that metric, or name another in gate.quality"
    assert next_of_comment(record) == f"gangline report {records.THIS_RUN} --open"


def test_a_comment_of_a_passed_run_compares_it_and_one_of_an_open_run_names_nothing():
    assert next_of_comment(records.passed()) == ""
    based = replace(records.passed(), commit=REFUSED.commit)
    assert next_of_comment(based) == f"gangline diff {records.BASE_RUN} {based.run.id}"
    assert next_of_comment(records.bare()) == ""


def test_logs_of_ranks_are_offered_only_where_ranks_failed():
    assert any("--failed" in step for step in next_steps(FAILED))
    assert not any("--failed" in step for step in next_steps(BROKEN_LATER))


def test_after_a_mistake_of_the_site_the_same_commit_can_be_run_again():
    mistaken = replace(FAILED, run=replace(FAILED.run, exit_code=10))
    assert next_steps(mistaken) == [
        "put it right",
        "gangline run for a new commit",
        "gangline run --again for this one",
    ]


def test_a_metric_is_one_word_of_a_shell():
    assert bisection("val loss", "a" * 40, "b" * 40) == "gangline bisect 'val loss' --good aaaaaaaa --bad bbbbbbbb"
