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


def test_a_stage_that_answers_later_is_asked_again_and_no_one_holds_an_agent_meanwhile(quick, place):
    (place / "train").write_text("75\n20\n40\n0\n")
    (place / "submit").write_text("20\n")
    one = build(quick)
    assert one.result()["result"] == "SUCCESS", one.tail()
    assert one.result()["containers"] > 10
    assert len([words for words in said(quick) if words.startswith("stage train")]) == 4
    assert len([words for words in said(quick) if words.startswith("stage submit")]) == 2
    log = one.read("log")
    assert [log.count(f"sleeps {seconds} s; agents held: 0") for seconds in (5, 10, 20, 40)] == [2, 1, 1, 0]
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


def test_looks_become_rarer_until_there_is_one_in_four_minutes(quick, place):
    (place / "train").write_text("75\n" * 9)
    one = build(quick)
    assert one.result()["result"] == "SUCCESS", one.tail()
    assert sleeps(one) == [5, 10, 20, 40, 80, 160, 240, 240, 240]


def sleeps(one):
    return [int(line.split()[1]) for line in one.read("log").splitlines() if line.startswith("sleeps")]


def test_a_build_sleeps_until_its_gang_should_end_and_then_looks_often(quick, place):
    """Lines of `ends` are of build, plan and submit, then of the looks at training: what is known of its end there."""
    (place / "train").write_text("75\n" * 10)
    (place / "ends").write_text("\n\n\n\n1000\n12\n\n3\n6\n$(id)\n-7\n700\n90\n")
    one = build(quick)
    assert one.result()["result"] == "SUCCESS", one.tail()
    assert sleeps(one) == [5, 10, 12, 5, 5, 5, 10, 20, 40, 80]
    assert one.result()["description"] == f"open | {RUN}"
    assert one.read("log").count("agents held: 0") == 10


def test_a_build_that_is_aborted_cancels_its_run(quick, place):
    (place / "train").write_text("75\n" * 10_000)
    one = build(quick)
    one.until_log("sleeps 20 s")
    one.abort()
    assert one.result()["result"] == "ABORTED", one.tail()
    assert f"cancel {RUN} --reason=the build was aborted" in said(quick)
    assert said(quick)[-1].startswith(f"report {RUN} --format junit")


@pytest.mark.parametrize(
    "last", ["", "resolve 0.1 s", f"{RUN}; touch owned", "$(touch owned)", f"{RUN} x", RUN.upper()]
)
def test_what_is_not_a_run_id_reaches_no_command(quick, place, last):
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
    assert one.read("log").count("s; agents held: 0") == 2


def test_what_no_push_starts_is_not_built_and_says_why(quick, place):
    why = "not triggered: trigger.branches leaves topic out"
    (place / "resolve").write_text(f"{why}\n")
    one = build(quick)
    result = one.result()
    assert (result["result"], result["description"], result["stages"]) == ("NOT_BUILT", why, ["Resolve"])
    assert [words.split()[:2] for words in said(quick)] == [["stage", "resolve"]]
    assert "--pushed" in said(quick)[0]


def test_a_line_that_does_not_hold_is_the_description_of_the_build(quick, place):
    (place / "resolve").write_text("resolve 0.1 s\nerror: line.toml: train.stepz: no such key\n  works: train.steps\n")
    (place / "code").write_text("10\n")
    result = build(quick).result()
    assert (result["result"], result["description"]) == ("FAILURE", "error: line.toml: train.stepz: no such key")


def test_again_asks_for_the_next_attempt(quick):
    result = build(quick, AGAIN="true").result()
    assert result["result"] == "SUCCESS"
    assert "--again" in said(quick)[0]
    assert "--pushed" not in said(quick)[0]


def test_a_run_that_was_cancelled_elsewhere_aborts_its_build(quick, place):
    (place / "train").write_text("70\n")
    one = build(quick)
    assert one.result()["result"] == "ABORTED", one.tail()
    assert said(quick)[-1].startswith(f"report {RUN} --format junit")


def answered(build, who):
    """The question that `build` asked, once it was answered; None: by nobody."""
    (question,) = until(lambda: list(build.folder.glob("input-*.json")), "a question")
    answer = question.with_name(question.name.replace("input", "answer").removesuffix(".json"))
    answer.with_suffix(".new").write_text(who)
    answer.with_suffix(".new").rename(answer)
    return json.loads(question.read_text())


@pytest.mark.row("P5")
@pytest.mark.parametrize("who", ["", "null", "anonymous"])
def test_an_approval_without_a_person_approves_nothing(quick, place, who):
    (place / "plan").write_text("20\n")
    one = build(quick, CHANGE_ID="7", CHANGE_BRANCH="topic", CHANGE_FORK="stranger", CHANGE_URL="https://forge/7")
    question = answered(one, who)
    assert "https://forge/7" in question["message"]
    assert "https://forge/7" in question["description"]
    assert "gangline-maintainers" in question["description"]
    assert one.result()["result"] == "FAILURE"
    assert one.result()["description"].splitlines()[0].startswith("an approval names a person")
    assert not [words for words in said(quick) if words.startswith("approve")]


@pytest.mark.row("P5")
def test_a_fork_is_asked_about_once_and_by_name(quick, place):
    (place / "plan").write_text("20\n20\n0\n")
    one = build(quick, CHANGE_ID="7", CHANGE_BRANCH="topic", CHANGE_FORK="stranger")
    answered(one, "ada; touch owned")
    assert one.result()["result"] == "SUCCESS", one.tail()
    assert f"approve {RUN} --who=ada; touch owned" in said(quick)
    assert len(list(one.folder.glob("input-*.json"))) == 1
    assert one.read("log").count("sleeps 5 s") == 1
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
    assert strange.result()["description"].startswith("a commit of a fork needs an agent of its own")
    assert len(quick.spied) == calls
