"""Every way in which a build ends by itself leaves a sentence as its description; gangline is a stub."""

import pytest
from tests.jenkins.controller.test_course import RUN, answered, build, said

pytestmark = pytest.mark.tools

FORK = {"CHANGE_ID": "7", "CHANGE_BRANCH": "topic", "CHANGE_FORK": "stranger"}
LINE = f"open | {RUN}"


def end(one):
    """Result and lines of the description."""
    result = one.result()
    return result["result"], result["description"].splitlines()


def test_a_stage_that_fails_names_its_exit_code_above_the_line_of_the_run(quick, place):
    (place / "plan").write_text("10\n")
    assert end(build(quick)) == ("FAILURE", [f"stage plan of {RUN} ended with 10", LINE])


def test_a_word_that_is_no_run_id_is_shown(quick, place):
    (place / "resolve").write_text("what?\n")
    assert end(build(quick)) == ("FAILURE", ["stage resolve gave no run id, but: what?"])


def test_an_approval_that_was_not_written_lets_nothing_in(quick, place):
    (place / "plan").write_text("20\n")
    (place / "approve").write_text("40\n")
    one = build(quick, **FORK)
    answered(one, "ada")
    why = "the approval was not written, exit code 40: build it again, and answer again"
    assert end(one) == ("FAILURE", [why, LINE])
    assert not [agent for agent, _, words in quick.spied if words.startswith("stage plan") and agent == "gangline-line"]


def test_a_run_that_cannot_be_cancelled_is_named_with_the_command_that_stops_it(quick, place):
    (place / "train").write_text("75\n" * 10_000)
    (place / "cancel").write_text("50\n")
    one = build(quick)
    one.until_log("sleeps 5 s")
    one.abort()
    why = f"{RUN} could not be cancelled, exit code 50: gangline cancel stops it"
    assert end(one) == ("ABORTED", [why, LINE])


def test_a_report_that_cannot_be_drawn_is_named_with_the_command_that_draws_it(quick, place):
    (place / "page").write_text("40\n")
    one = build(quick)
    assert end(one) == ("FAILURE", [f"the report of {RUN} could not be drawn here: gangline report draws it"])
    assert said(quick)[-1].startswith(f"report {RUN} --format junit")
