"""Builds, carried out: real commands on agents, the engine that Jenkins has, a controller that dies on purpose."""

import json
import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tests.jenkins.controller.jenkins import until
from tests.line import repositories
from tests.line.run.test_stopping import processes_of

from gangline.line.record.runs import list_runs
from gangline.spec.record import STAGES
from gangline.storage.open import open_store

pytestmark = pytest.mark.tools

PAGE = "https://jenkins.example/job/gangline/job/main/1/"


def head(jenkins):
    return repositories.git(jenkins.repository, "rev-parse", "HEAD")


def records(jenkins):
    return list(list_runs(open_store(f"file:{jenkins.store}")))


def trainings(jenkins):
    """Runs whose training began, in that order; a run that began twice is there twice."""
    begun = sorted(left(jenkins, "begun"), key=lambda path: path.stat().st_mtime_ns)
    return [run for path in begun for run in path.read_text().split()]


def left(jenkins, name):
    """Files of this name that programs left in the folders of their gangs."""
    return list(jenkins.workspace.glob(f".gangline/gangs/*/**/{name}"))


def a_step_of(build, name):
    """The process of an agent that runs stage `name` now."""
    steps = [pid for pid in build.folder.glob("steps/*/pid") if "stage" in pid.with_name("script").read_text()]
    running = [pid for pid in build.commands() if str(pid) in [step.read_text().strip() for step in steps]]
    is_stage = f"\0{name}\0".encode()
    return next((pid for pid in running if any(is_stage in line for line in command_lines(pid))), None)


def command_lines(group):
    """Of the processes of one group, as far as they are still there."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(folder.name)) == group:
                yield (folder / "cmdline").read_bytes()
        except OSError:
            continue


def strike(group):
    """Kill a group of processes that may have ended just now."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def lose_agent(build):
    """Kill what the agent of a look at the gang does, with all that it started."""

    def is_lost():
        pid = a_step_of(build, "train")
        if pid is not None:
            strike(pid)
        return "again on another agent" in build.read("log")

    until(is_lost, "a lost agent")


@pytest.mark.row("C6")
def test_a_build_outlives_controller_and_agent_and_trains_once(jenkins, place):
    """Both are killed while the gang trains; a new controller finds the step, a new agent the run."""
    build = jenkins.build(head(jenkins), BRANCH_NAME="main", BUILD_URL=PAGE)
    until(lambda: trainings(jenkins) and a_step_of(build, "train"), "training")
    build.kill()
    build.start()
    build.until_log("the controller is back")
    build.until_log("sleeps 5 s; agents held: 0")
    lose_agent(build)
    (record,) = records(jenkins)
    assert record.run.state == "open"
    build.kill()
    (place / "go").touch()
    result = build.start().result()
    (record,) = records(jenkins)
    assert result["result"] == "SUCCESS", build.tail()
    assert result["stages"] == [name.capitalize() for name in STAGES]
    assert result["displayName"] == record.run.id == result["env"]["RUN"]
    assert trainings(jenkins) == [record.run.id]
    assert (record.run.verdict, record.commit.branch, record.gang.generations) == ("passed", "main", 1)
    assert (record.links["jenkins"], record.run.driver.kind) == (PAGE, "jenkins")
    assert result["description"].startswith(f"passed, 1 gate could not judge · {record.run.id}")
    assert "<html" in build.read("artifacts/report.html")
    assert json.loads(build.read("junit.json"))["failures"] == 0


def test_a_newer_push_ends_what_a_dead_jenkins_left_and_an_abort_leaves_nothing(jenkins, place):
    first = jenkins.build(head(jenkins), BRANCH_NAME="topic")
    until(lambda: len(trainings(jenkins)) == 1, "training")
    first.kill()
    newer = repositories.commit(jenkins.repository, {"README.md": "newer"})
    until(lambda: first.commands() == [], "the last look of the first build")
    second = jenkins.build(newer, BRANCH_NAME="topic")
    run = until(lambda: trainings(jenkins)[1:], "training of the newer")[0]
    older = next(each for each in records(jenkins) if each.run.id != run)
    assert (older.run.verdict, older.run.cancel_requested) == ("superseded", f"superseded by {run}")
    assert processes_of(older.run.id) == []
    second.abort()
    result = second.result()
    newest = next(each for each in records(jenkins) if each.run.id == run)
    assert result["result"] == "ABORTED", second.tail()
    assert (newest.run.verdict, newest.run.cancel_requested) == ("cancelled", "the build was aborted")
    assert result["description"].startswith(f"cancelled · {run}")
    assert processes_of(run) == []
    assert second.commands() == []


@pytest.mark.row("P5")
def test_a_fork_stops_until_a_maintainer_lets_it_in_and_never_sees_a_secret(jenkins, place):
    (place / "go").touch()
    strange = "topic';touch owned;'"
    change = {"BRANCH_NAME": "PR-7", "CHANGE_ID": "7", "CHANGE_BRANCH": strange, "CHANGE_FORK": "stranger/model"}
    build = jenkins.build(head(jenkins), **change)
    until(lambda: list(build.folder.glob("input-*.json")) or build.process.poll() is not None, "a question")
    (question,) = build.folder.glob("input-*.json")
    (record,) = records(jenkins)
    assert json.loads(question.read_text())["submitter"].split(",")[0] == "gangline-maintainers"
    assert json.loads(question.read_text())["held"] == 0
    assert (record.commit.trust, record.commit.pull_request, record.commit.branch) == ("fork", 7, strange)
    assert record.run.approved is None
    assert trainings(jenkins) == []
    touched = [said for said in jenkins.spied if said[2].split()[:2] in (["stage", "build"], ["stage", "plan"])]
    assert {said[:2] for said in touched} == {("gangline-check", "gangline-fork-signing,gangline-fork-store")}
    answer = build.folder / question.name.replace("input", "answer").removesuffix(".json")
    answer.with_suffix(".new").write_text("ada")
    answer.with_suffix(".new").rename(answer)
    result = build.result()
    (record,) = records(jenkins)
    assert record.run.approved.startswith("ada, "), build.tail()
    assert trainings(jenkins) == [record.run.id], build.tail()
    assert result["result"] == "SUCCESS", build.tail()
    assert record.seal.key_id == jenkins.keys["gangline-signing"].key_id
    assert len(list(build.folder.glob("input-*.json"))) == 1
    (environ,) = left(jenkins, "environ")
    seen = environ.read_text()
    kept = b"".join(
        path.read_bytes() for path in [*jenkins.store.rglob("*"), *build.folder.rglob("*")] if path.is_file()
    )
    assert "CANARY" not in seen
    assert b"CANARY" not in kept
    assert not list(jenkins.folder.rglob("owned"))
    again = jenkins.build(head(jenkins), **change)
    assert again.result()["result"] == "SUCCESS", again.tail()
    assert trainings(jenkins) == [record.run.id]


@pytest.mark.slow
@pytest.mark.row("C6", full="100 deaths of a Jenkins controller in 10 builds")
@pytest.mark.parametrize("seed", range(10))
def test_a_build_whose_controller_dies_ten_times_trains_once(jenkins, place, seed):
    """At moments nobody chose; twice the agent dies, too. A hundred deaths in all."""
    chance = random.Random(seed)
    agents = set(chance.sample(range(10), 2))
    build = jenkins.build(head(jenkins), BRANCH_NAME="main")
    for death in range(10):
        time.sleep(chance.uniform(0.2, 4.0))
        for pid in build.commands() if death in agents else ():
            strike(pid)
        build.kill()
        if death == 7:
            (place / "go").touch()
        build.start()
    result = build.result()
    (record,) = records(jenkins)
    assert result["result"] == "SUCCESS", build.tail()
    assert trainings(jenkins) == [record.run.id]
    assert (record.run.verdict, record.gang.restarts) == ("passed", 0)
    assert processes_of(record.run.id) == []
