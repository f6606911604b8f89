"""The course of a build by what its commands answer, carried out by the engine that Jenkins has; gangline is a stub."""

import json

import pytest
from tests.jenkins.controller.jenkins import until
from tests.line import repositories

pytestmark = pytest.mark.tools

RUN = "demo-9f31c2a0-k7q2mx"


def build(quick, **env):
    return quick.build(repositories.git(quick.repository, "rev-parse", "HEAD"), BRANCH_NAME="main", **env)


def said(quick):
    """Commands in order, without the lines that describe the build."""
    return [words for _, _, words in quick.spied if not words.startswith("show")]


def test_a_stage_that_answers_later_is_asked_again_and_nobody_holds_an_agent_meanwhile(quick, place):
    (place / "train").write_text("75\n20\n40\n0\n")
    (place / "submit").write_text("20\n")
    one = build(quick)
    assert one.result()["result"] == "SUCCESS", one.tail()
    assert one.result()["containers"] > 10
    assert len([words for words in said(quick) if words.startswith("stage train")]) == 4
    assert len([words for words in said(quick) if words.startswith("stage submit")]) == 2
    assert one.read("log").count("sleeps 4 minutes; agents held: 0") == 4
    assert not [words for words in said(quick) if words.startswith("cancel")]


@pytest.mark.parametrize(("stage", "code"), [("build", 30), ("plan", 10), ("gate", 60), ("train", 31)])
def test_a_stage_that_fails_ends_the_build_and_the_report_is_drawn(quick, place, stage, code):
    (place / stage).write_text(f"{code}\n")
    one = build(quick)
    result = one.result()
    assert result["result"] == "FAILURE"
    assert result["stages"][-1] == stage.capitalize()
    assert f"stage {stage} of {RUN} ended with {code}" in one.read("log")
    assert json.loads(one.read("junit.json")) == {"tests": 1, "failures": 0}
    assert said(quick)[-3].startswith("stage report")
    assert not [words for words in said(quick) if words.startswith("cancel")]


@pytest.mark.parametrize(
    ("result", "reason"), [("ABORTED", "the build was aborted"), ("NOT_BUILT", "a newer build took its place")]
)
def test_a_build_that_is_stopped_cancels_its_run(quick, place, result, reason):
    (place / "train").write_text("75\n" * 10_000)
    one = build(quick)
    one.until_log("sleeps 4 minutes")
    one.abort(result)
    assert one.result()["result"] == result, one.tail()
    assert f"cancel {RUN} --reason={reason}" in said(quick)
    assert said(quick)[-1].startswith(f"report {RUN} --format junit")


@pytest.mark.parametrize(
    "last", ["", "resolve 0.1 s", f"{RUN}; touch owned", "$(touch owned)", f"{RUN} x", RUN.upper()]
)
def test_what_is_no_run_id_reaches_no_command(quick, place, last):
    (place / "resolve").write_text(f"resolve 0.1 s\n{last}\n")
    one = build(quick)
    assert one.result()["result"] == "FAILURE"
    assert "gave no run id, but: " in one.read("log")
    assert [words.split()[:2] for words in said(quick)] == [["stage", "resolve"]]
    assert not list(quick.folder.rglob("owned"))


def test_a_store_that_is_away_is_waited_for_before_there_is_a_run(quick, place):
    (place / "code").write_text("40\n20\n")
    one = build(quick)
    assert one.result()["result"] == "SUCCESS", one.tail()
    assert len([words for words in said(quick) if words.startswith("stage resolve")]) == 3
    assert one.read("log").count("sleeps 4 minutes; agents held: 0") == 2


@pytest.mark.row("P5")
def test_a_fork_is_asked_about_once_and_by_name(quick, place):
    (place / "plan").write_text("20\n20\n0\n")
    one = build(quick, CHANGE_ID="7", CHANGE_BRANCH="topic", CHANGE_FORK="stranger")
    (question,) = until(lambda: list(one.folder.glob("input-*.json")), "a question")
    answer = question.with_name(question.name.replace("input", "answer").removesuffix(".json"))
    answer.with_suffix(".new").write_text("ada; touch owned")
    answer.with_suffix(".new").rename(answer)
    assert one.result()["result"] == "SUCCESS", one.tail()
    assert f"approve {RUN} --who=ada; touch owned" in said(quick)
    assert len(list(one.folder.glob("input-*.json"))) == 1
    assert one.read("log").count("sleeps 4 minutes") == 1
    touched = {words.split()[1]: agent for agent, _, words in quick.spied if words.startswith("stage")}
    assert [touched[name] for name in ("resolve", "build", "plan")] == [
        "gangline-check",
        "gangline-check",
        "gangline-line",
    ]
    assert not list(quick.folder.rglob("owned"))


def test_a_controller_that_dies_at_every_turn_does_nothing_twice(quick, place):
    """Killed again and again, as soon as it has come a little further."""
    (place / "train").write_text("75\n75\n0\n")
    one = build(quick)
    for _ in range(5):
        before = len(quick.spied)
        until(lambda before=before: len(quick.spied) > before + 2 or one.process.poll() is not None, "progress")
        one.kill()
        one.start()
    result = one.result()
    assert result["result"] == "SUCCESS", one.tail()
    stages = [words.split()[1] for words in said(quick) if words.startswith("stage")]
    assert stages == [
        "resolve", "build", "plan", "submit", "train", "train", "train", "evaluate", "gate", "prove", "publish",
        "report", "report",
    ]  # fmt: skip


@pytest.mark.row("P5")
def test_plain_machines_are_agents_without_containers_and_take_no_fork(quick):
    result = build(quick, GANGLINE_AGENTS="plain").result()
    assert (result["result"], result["containers"]) == ("SUCCESS", 0)
    calls = len(quick.spied)
    strange = build(quick, GANGLINE_AGENTS="plain", CHANGE_ID="7", CHANGE_BRANCH="topic", CHANGE_FORK="stranger")
    assert strange.result()["result"] == "FAILURE"
    assert "a commit of a fork needs an agent of its own" in strange.read("log")
    assert len(quick.spied) == calls
