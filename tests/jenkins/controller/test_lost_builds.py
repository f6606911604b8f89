"""Agents that never come or go away: such a build cancels nothing, and another one finds its run."""

import os
import signal
from pathlib import Path

import pytest
from tests.jenkins.controller.jenkins import until
from tests.jenkins.controller.test_course import RUN, build, said

pytestmark = pytest.mark.tools

LOST = "three agents were lost one after the other: the run goes on, and a build of the same commit finds it"


def lose_agents(one, times):
    """Kill what the build does on its agent while it trains, so often."""
    one.until_log("== Train")
    for _ in range(times):
        (group,) = until(one.commands, "a command on an agent")
        os.killpg(group, signal.SIGKILL)
        until(lambda group=group: not Path(f"/proc/{group}").exists(), "the end of that command")


def lose_places(one, times):
    """End its waiting in the queue, so often, as Jenkins does with a task that it does not know any more."""
    for _ in range(times):
        (one.folder / "queue-lost").touch()
        until(lambda: not (one.folder / "queue-lost").exists(), "a lost place in the queue")


@pytest.mark.parametrize("agents", ["", "plain"])
def test_a_lost_agent_is_replaced_whatever_it_is(quick, place, agents):
    (place / "hang").write_text("6\n6\n")
    one = build(quick, GANGLINE_AGENTS=agents)
    lose_agents(one, 2)
    assert one.result()["result"] == "SUCCESS", one.tail()
    assert one.read("log").count("again on another agent") == 2


@pytest.mark.parametrize("agents", ["", "plain"])
def test_a_build_that_loses_three_agents_fails_and_cancels_nothing(quick, place, agents):
    (place / "hang").write_text("6\n" * 3)
    one = build(quick, GANGLINE_AGENTS=agents)
    lose_agents(one, 3)
    result = one.result()
    assert (result["result"], result["description"].splitlines()[0]) == ("FAILURE", LOST), one.tail()
    assert not [words for words in said(quick) if words.startswith("cancel")]
    assert said(quick)[-1].startswith(f"report {RUN} --format junit")


def test_a_place_in_the_queue_that_is_lost_is_taken_again(quick):
    one = quick.build(ref="refs/heads/main", meanwhile=["agents-away"], BRANCH_NAME="main")
    one.until_log("waits for an agent")
    lose_places(one, 2)
    (one.folder / "agents-away").unlink()
    assert one.result()["result"] == "SUCCESS", one.tail()


def test_a_build_whose_place_is_lost_three_times_cancels_nothing(quick, place):
    (place / "train").write_text("75\n" * 10_000)
    one = build(quick)
    one.until_log("sleeps 5 s")
    (one.folder / "agents-away").touch()
    one.until_log("waits for an agent")
    lose_places(one, 3)
    (one.folder / "agents-away").unlink()
    result = one.result()
    assert (result["result"], result["description"].splitlines()[0]) == ("FAILURE", LOST), one.tail()
    assert not [words for words in said(quick) if words.startswith("cancel")]


def test_a_build_that_waits_for_an_agent_is_aborted_by_a_person_and_cancels(quick, place):
    (place / "train").write_text("75\n" * 10_000)
    one = build(quick)
    one.until_log("sleeps 5 s")
    (one.folder / "agents-away").touch()
    one.until_log("waits for an agent")
    one.abort()
    (one.folder / "agents-away").unlink()
    assert one.result()["result"] == "ABORTED", one.tail()
    assert f"cancel {RUN} --reason=the build was aborted" in said(quick)


def test_an_abort_names_the_page_of_the_build_that_asks(quick, place):
    """So gangline leaves a run alone that a later build drives: see `gangline cancel --url`."""
    (place / "train").write_text("75\n" * 10_000)
    one = build(quick, BUILD_URL="https://jenkins.example/1/")
    one.until_log("sleeps 5 s")
    one.abort()
    assert one.result()["result"] == "ABORTED", one.tail()
    assert f"cancel {RUN} --reason=the build was aborted --url=https://jenkins.example/1/" in said(quick)


def test_a_cancel_that_finds_the_store_away_is_tried_again(quick, place):
    (place / "train").write_text("75\n" * 10_000)
    (place / "cancel").write_text("40\n20\n75\n")
    one = build(quick)
    one.until_log("sleeps 5 s")
    one.abort()
    assert one.result()["result"] == "ABORTED", one.tail()
    assert len([words for words in said(quick) if words.startswith("cancel")]) == 4
