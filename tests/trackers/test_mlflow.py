"""MLflow's writer against a real server: one run whatever happens, and words for what a server refuses."""

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace

import pytest
from tests.tools.__main__ import TOOLS, tools_folder
from tests.trackers.mlflow_server import Door

from gangline.faults.proxy import FaultProxy, FaultRule
from gangline.spec.config.site_tables import TrackTable
from gangline.trackers import child, mlflow
from gangline.trackers.protocol import Point, TrackedRun, TrackerError, WriterSettings
from gangline.trackers.writer_process import WriterProcess

pytestmark = pytest.mark.tools
POINTS = [
    Point(metric, step, 1_764_385_200_000 + step, 1 / (step + 1)) for step in range(60) for metric in ("loss", "lr")
]


@pytest.fixture
def run(request):
    name = request.node.name.replace("[", "-").replace("]", "")
    return TrackedRun(
        id="digits-9f31c2a0-k7q2mx", project="digits", experiment=name, name="digits-9f31c2a0-k7q2mx", status="running",
        started_ms=1_764_385_200_000, parameters={"train.steps": "60", "train.seed": "1"},
        tags={"gangline.repository": "example.org/digits", "gangline.commit": "9f31c2a0" * 5},
    )  # fmt: skip


def writer(url, *, token=None, prefix=""):
    return mlflow.open_writer(WriterSettings(kind="mlflow", url=url, token=token, prefix=prefix))


def mirror(made, run, points=POINTS):
    """All that is sent of a run, from its begin to its end."""
    made.begin(run)
    made.write(points)
    made.finish(replace(run, status="finished", ended_ms=1_764_385_300_000))


def runs_of(client, run):
    experiment = client.get_experiment_by_name(run.experiment)
    return client.search_runs([experiment.experiment_id]) if experiment else []


def history(client, found, metric):
    return [(each.step, each.timestamp, each.value) for each in client.get_metric_history(found.info.run_id, metric)]


def expected(metric):
    return [(each.step, each.time_ms, each.value) for each in POINTS if each.metric == metric]


@pytest.mark.row("TB3")
def test_a_run_is_there_with_all_that_was_sent_and_again_changes_nothing(mlflow_server, mlflow_client, run):
    mirror(writer(mlflow_server.url), run)
    (before,) = runs_of(mlflow_client, run)
    mirror(writer(mlflow_server.url), run)
    (after,) = runs_of(mlflow_client, run)
    assert after.to_dictionary() == before.to_dictionary()
    assert after.data.params == run.parameters
    assert after.data.tags["gangline.run"] == run.id
    assert after.data.tags["gangline.commit"] == run.tags["gangline.commit"]
    assert (after.info.status, after.info.start_time, after.info.end_time) == (
        "FINISHED", run.started_ms, 1_764_385_300_000,
    )  # fmt: skip
    for metric in ("loss", "lr"):
        assert sorted(history(mlflow_client, after, metric)) == expected(metric)


@pytest.mark.row("TB1")
def test_a_writer_that_dies_at_any_call_leaves_one_run_with_an_equal_history(
    mlflow_server, mlflow_client, run, monkeypatch
):
    monkeypatch.setattr(mlflow.random, "random", lambda: 0.02)
    whole = replace(run, group=f"s-{run.id}")
    with Door(mlflow_server.url, "right") as door:
        mirror(writer(door.url, token="right"), replace(whole, experiment=f"{run.experiment}-whole"))
        calls = len(door.requests)
        assert calls >= 10
        for number in range(1, calls + 1):
            cut = replace(whole, experiment=f"{run.experiment}-{number}")
            door.lose_answer(number)
            with pytest.raises(Exception, match=r"Connection|RemoteDisconnected"):
                mirror(writer(door.url, token="right"), cut)
            mirror(writer(mlflow_server.url), cut)
            tags = {each.data.tags.get("gangline.run", "parent"): each for each in runs_of(mlflow_client, cut)}
            assert len(runs_of(mlflow_client, cut)) == 2, f"after call {number}"
            for metric in ("loss", "lr"):
                assert sorted(history(mlflow_client, tags[run.id], metric)) == expected(metric)
            assert {each.info.status for each in tags.values()} == {"FINISHED"}


@pytest.mark.row("TB1")
def test_a_killed_process_and_the_next_one_make_one_run(mlflow_server, mlflow_client, run):
    def lines(*, finish):
        yield {"open": {"kind": "mlflow", "url": mlflow_server.url}}
        yield {"begin": asdict(run)}
        yield {
            "write": [[each.metric, each.step, each.time_ms, each.value] for each in POINTS[: None if finish else 50]]
        }
        if finish:
            yield {"finish": asdict(replace(run, status="finished", ended_ms=1_764_385_300_000))}

    for finish in (False, True):
        process = subprocess.Popen(
            [sys.executable, "-P", child.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        for line in lines(finish=finish):
            process.stdin.write(json.dumps(line) + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline()) == {"done": None}
        process.kill()
        process.communicate()
    (found,) = runs_of(mlflow_client, run)
    assert found.info.status == "FINISHED"
    assert sorted(history(mlflow_client, found, "loss")) == expected("loss")


@pytest.mark.row("TB1")
def test_creators_at_the_same_time_make_one_run_and_one_parent(mlflow_server, mlflow_client, run):
    trials = [replace(run, id=f"digits-9f31c2a0-k7q2m{number % 2}", group="s-9f31c2a0-m4k7") for number in range(6)]
    writer(mlflow_server.url).begin(replace(run, id="digits-9f31c2a0-first"))  # the experiment is there
    start = threading.Barrier(len(trials))

    def begin(trial):
        made = writer(mlflow_server.url)
        start.wait()
        made.begin(trial)

    with ThreadPoolExecutor(len(trials)) as pool:
        list(pool.map(begin, trials))
    found = runs_of(mlflow_client, run)
    parents = [each for each in found if "gangline.parent_of" in each.data.tags]
    children = [each for each in found if each.data.tags.get("mlflow.parentRunId") == parents[0].info.run_id]
    assert len(parents) == 1
    assert sorted(each.data.tags["gangline.run"] for each in children) == sorted({trial.id for trial in trials})
    assert len(found) == 4


def test_the_parent_of_a_search_ends_with_the_last_of_its_trials(mlflow_server, mlflow_client, run):
    first, second = (replace(run, id=f"digits-9f31c2a0-{name}", group="s-9f31c2a0-m4k7") for name in ("one", "two"))
    writers = [writer(mlflow_server.url) for _ in range(2)]
    for made, trial in zip(writers, (first, second), strict=True):
        made.begin(trial)

    def parent():
        return next(each for each in runs_of(mlflow_client, run) if "gangline.parent_of" in each.data.tags)

    writers[0].finish(replace(first, status="killed", ended_ms=1_764_385_300_000))
    assert parent().info.status == "RUNNING"
    writers[1].finish(replace(second, status="failed", ended_ms=1_764_385_300_001))
    assert (parent().info.status, parent().info.end_time) == ("FINISHED", 1_764_385_300_001)
    states = {each.data.tags.get("gangline.run"): each.info.status for each in runs_of(mlflow_client, run)}
    assert (states[first.id], states[second.id]) == ("KILLED", "FAILED")


def test_what_is_too_long_or_oddly_named_is_taken_in_a_form_that_says_so(mlflow_server, mlflow_client, run):
    odd = replace(
        run,
        parameters={f"train.k{number}": "1" for number in range(150)} | {"long": "x" * 9000, "at/../it": "2"},
        tags={"gangline.artifact.checkpoint#2": "key", "long": "y" * 9000},
    )
    points = [Point("loss{a}", 1, 1, 1.0), Point("loss[a]", 1, 1, 2.0), Point("final/loss", 1, 1, 3.0)]
    mirror(writer(mlflow_server.url, prefix="gangline/"), odd, points)
    (found,) = runs_of(mlflow_client, odd)
    assert len(found.data.params) == 152
    assert found.data.params["gangline/long"].endswith(" ... cut, 9000 characters")
    assert len(found.data.params["gangline/long"]) == 6000
    assert found.data.tags["long"].endswith(" ... cut, 9000 characters")
    assert found.data.metrics["gangline/final/loss"] == 3.0
    assert sorted(found.data.metrics.values()) == [1.0, 2.0, 3.0]


def test_another_projects_run_of_that_id_is_left_alone(mlflow_server, mlflow_client, run):
    mirror(writer(mlflow_server.url), run)
    (before,) = runs_of(mlflow_client, run)
    for other in (replace(run, project="letters"), replace(run, tags={"gangline.repository": "example.org/else"})):
        with pytest.raises(TrackerError, match=r"left alone.*experiment of the table names another one"):
            writer(mlflow_server.url).begin(other)
    (after,) = runs_of(mlflow_client, run)
    assert after.to_dictionary() == before.to_dictionary()


def test_a_deleted_experiment_and_a_deleted_run_say_how_they_come_back(mlflow_server, mlflow_client, run):
    made = writer(mlflow_server.url)
    made.begin(run)
    (found,) = runs_of(mlflow_client, run)
    mlflow_client.delete_run(found.info.run_id)
    with pytest.raises(TrackerError, match="deleted there is written again by gangline track push"):
        made.write(POINTS)
    mirror(writer(mlflow_server.url), run)
    (again,) = runs_of(mlflow_client, run)
    assert again.info.run_id != found.info.run_id
    mlflow_client.delete_experiment(again.info.experiment_id)
    with pytest.raises(TrackerError, match=f"mlflow experiments restore -x {again.info.experiment_id}"):
        writer(mlflow_server.url).begin(run)


def test_a_token_is_sent_and_a_wrong_one_is_called_wrong_without_being_shown(
    mlflow_server, mlflow_client, run, monkeypatch
):
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "someone")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "else")
    with Door(mlflow_server.url, "right") as door:
        with pytest.raises(TrackerError, match="wanted a token that this server takes") as refused:
            writer(door.url, token="wr0ng-and-secret").begin(run)
        assert "wr0ng" not in str(refused.value)
        assert runs_of(mlflow_client, run) == []
        writer(door.url, token="right").begin(run)
        assert len(runs_of(mlflow_client, run)) == 1


@pytest.mark.row("TB2")
def test_outages_are_no_refusals_and_a_second_writing_completes_them(mlflow_server, mlflow_client, run, monkeypatch):
    with FaultProxy("127.0.0.1", mlflow_server.port) as proxy:
        for rule in (FaultRule(action="answer", probability=1.0), FaultRule(action="reset", on_request=4)):
            proxy.set_rules(rule)
            with pytest.raises(Exception, match=r"503|Connection|aborted|reset") as away:
                mirror(writer(proxy.endpoint), run)
            assert not isinstance(away.value, TrackerError)
        with monkeypatch.context() as patch:
            patch.setattr(mlflow, "CALL_SECONDS", 1)
            proxy.set_rules(FaultRule(action="delay", probability=1.0, seconds=3.0))
            with pytest.raises(Exception, match="timed out") as away:
                writer(proxy.endpoint).begin(run)
            assert not isinstance(away.value, TrackerError)
        proxy.set_rules()
        proxy.shut()
        with pytest.raises(Exception, match="refused") as away:
            writer(proxy.endpoint).begin(run)
        assert not isinstance(away.value, TrackerError)
        proxy.open()
        mirror(writer(proxy.endpoint), run)
    (found,) = runs_of(mlflow_client, run)
    assert sorted(history(mlflow_client, found, "loss")) == expected("loss")


def test_no_other_address_than_a_servers_is_opened(tmp_path):
    for url in (None, "sqlite:///x.db", "databricks", "mlruns", str(tmp_path), "file:///tmp/x"):
        with pytest.raises(TrackerError, match="wanted that of an MLflow server"):
            writer(url)


def test_what_the_server_has_is_seen_without_making_anything(mlflow_server, mlflow_client, run):
    assert writer(mlflow_server.url).look(run) is None
    assert mlflow_client.get_experiment_by_name(run.experiment) is None
    mirror(writer(mlflow_server.url), run)
    found = writer(mlflow_server.url).look(run)
    (there,) = runs_of(mlflow_client, run)
    assert (found.id, found.step, found.time_ms, found.status) == (
        there.info.run_id, 59, 1_764_385_200_059, "finished",
    )  # fmt: skip
    assert found.place == f"{mlflow_server.url}/#/experiments/{there.info.experiment_id}/runs/{there.info.run_id}"


def test_the_writer_runs_in_an_interpreter_that_has_mlflow_and_nothing_of_gangline(mlflow_server, mlflow_client, run):
    tool = next(tool for tool in TOOLS if tool.name == "mlflow")
    python = str(tool.program(tools_folder()).with_name("python"))
    table = TrackTable(kind="mlflow", url=mlflow_server.url, python=python)
    process = WriterProcess(WriterSettings(kind="mlflow", url=mlflow_server.url), table=table, environ={"HOME": "/"})
    try:
        process.open()
        process.begin(run)
        assert process.look(run).id == runs_of(mlflow_client, run)[0].info.run_id
    finally:
        process.end()
