"""One run in MLflow for four ranks, three generations, drivers that are killed at calls of the tracker, and a push."""

import os
import signal
import subprocess
import sys
from functools import partial

import pytest
from tests.line import repositories
from tests.trackers.mlflow_server import Door

from gangline.cli.workspace import open_workspace
from gangline.line.record.runs import list_runs
from gangline.trackers.operations import all_points
from gangline.trackers.stored_run import stored_events

pytestmark = [pytest.mark.tools, pytest.mark.long]
STEPS = 24
FALLS = f"""\
import os, time
from gangline.train import Program
rank, generation = int(os.environ["RANK"]), int(os.environ["GANGLINE_GENERATION"])
with Program(steps={STEPS}) as program:
    for step in range({STEPS}):
        if rank == 1 and (generation, step) in ((0, 6), (1, 12)):
            os.kill(os.getpid(), 9)
        time.sleep(0.4)
        program.step(loss=1.0 / (step + 1 + generation))
    program.report(eval_loss=0.5)
"""
KILLED_AT = (4, 12)
"""Requests of all drivers to the tracker, counted from 1."""


@pytest.mark.row("TB1")
@pytest.mark.timeout(560)
def test_ranks_generations_and_killed_drivers_are_one_run_with_the_history_of_its_events(
    tmp_path, mlflow_server, mlflow_client, monkeypatch
):
    line = repositories.line_with(repositories.LINE, f"train.steps={STEPS}", "train.ranks=4", "train.global_batch=4")
    repo = repositories.make_repository(tmp_path / "repo", {"line.toml": line, "answer.py": FALLS})
    environ = os.environ | {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config"), "TRACKER": "right"}
    with Door(mlflow_server.url, "right") as door:
        site = tmp_path / "config" / "gangline" / "site.toml"
        site.parent.mkdir(parents=True)
        site.write_text(
            f'[track.ours]\nkind = "mlflow"\nurl = "{door.url}"\ntoken = "secret:env:TRACKER"\nevery_seconds = 0.5\n'
            'experiment = "one-run"\n'
        )
        ends = []
        for request in (*KILLED_AT, None):
            driver = subprocess.Popen(
                [sys.executable, "-m", "gangline", "run", "--json", "--repo", str(repo)], env=environ,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            if request is not None:
                door.strikes[max(request, len(door.requests) + 1)] = partial(os.kill, driver.pid, signal.SIGKILL)
            said, _ = driver.communicate()
            ends.append(driver.returncode)
        pushed = subprocess.run(
            [sys.executable, "-m", "gangline", "track", "push", "--repo", str(repo)],
            env=environ,
            capture_output=True,
            check=False,
        )
        assert pushed.returncode == 0, pushed.stderr
        assert ends == [-signal.SIGKILL] * len(KILLED_AT) + [0], said.decode()[-2000:]
    for name in ("HOME", "XDG_CONFIG_HOME", "TRACKER"):
        monkeypatch.setenv(name, environ[name])
    workspace = open_workspace(repo, None)
    (record,) = list_runs(workspace.store)
    events = list(stored_events(workspace.store, record))
    assert {event["generation"] for event in events if event.get("event") == "step"} == {0, 1, 2}
    experiment = mlflow_client.get_experiment_by_name("one-run")
    (run,) = mlflow_client.search_runs([experiment.experiment_id])
    assert (run.data.tags["gangline.run"], run.info.status) == (record.run.id, "FINISHED")
    points = list(all_points(record, events))
    for metric in {point.metric for point in points}:
        wanted = sorted((point.step, point.time_ms, point.value) for point in points if point.metric == metric)
        history = mlflow_client.get_metric_history(run.info.run_id, metric)
        assert sorted((each.step, each.timestamp, each.value) for each in history) == wanted
