"""Programs that track by themselves: whose ranks join the run, and what all others get instead."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.line import repositories
from tests.line.conftest import Workspace
from tests.line.records import record as make_record

from gangline.errors import IntegrityError
from gangline.keeper.rank_environment import tracking_environ
from gangline.line.gangs.launchers import secret_reader
from gangline.line.request.trust import rights_of
from gangline.spec.config.site import Site
from gangline.spec.config.site_tables import TrackTable
from gangline.storage.objects.protocol import list_all
from gangline.trackers import programs

OURS = TrackTable(kind="mlflow", url="https://mlflow.example", token="secret:env:TOKEN", programs=True)
WB = TrackTable(kind="wandb", token="secret:env:KEY", programs=True)
JOINS = """\
import json, os, time
import mlflow, wandb
from gangline.train import Program
with Program(steps=4) as program:
    with mlflow.start_run() as active:
        mlflow.log_param("train.steps", "of the program")
        for step in range(4):
            mlflow.log_metric("loss", 10.0 + step, step=step)
    run = wandb.init(dir=os.environ["TMPDIR"])
    run.log({"loss": 1.0})
    offline = run.settings._offline
    run.finish()
    for step in range(4):
        program.step(loss=1.0 / (step + 1))
    seen = {"mlflow": active.info.run_id[::-1], "wandb": run.id, "offline": offline, "names": sorted(os.environ)}
    print("SEEN " + json.dumps(seen), flush=True)
    program.report(accuracy=0.5)
"""


def joined(record, **tables):
    return programs.joined_trackers(record, Site(track=tables))


def with_values(record, **values):
    return replace(
        record, inputs=replace(record.inputs, values={key.replace("__", "."): values[key] for key in values})
    )


def test_forks_projects_that_opt_out_and_lines_that_track_elsewhere_join_nothing():
    own = make_record()
    assert list(joined(own, ours=OURS, wb=WB)) == ["ours", "wb"]
    assert joined(replace(own, commit=replace(own.commit, trust="fork")), ours=OURS, wb=WB) == {}
    assert joined(with_values(own, project__track=[]), ours=OURS) == {}
    assert list(joined(with_values(own, project__track=["wb"]), ours=OURS, wb=WB)) == ["wb"]
    assert list(joined(with_values(own, train__env__MLFLOW_TRACKING_URI="http://x"), ours=OURS, wb=WB)) == ["wb"]
    assert joined(own, ours=replace(OURS, programs=False), tb=TrackTable(kind="tensorboard", programs=True)) == {}


def test_a_gang_of_a_training_is_given_addresses_and_names_of_secrets_and_other_gangs_none():
    record = make_record()
    trackers = {"ours": OURS, "wb": replace(WB, experiment="{project}-x")}
    assert programs.program_variables(record, trackers, "train") == {
        "MLFLOW_TRACKING_URI": "https://mlflow.example", "MLFLOW_DISABLE_TELEMETRY": "true",
        "WANDB_RUN_ID": record.run.id, "WANDB_RESUME": "allow",
        "WANDB_MODE": "online", "WANDB_PROJECT": "cheap-x",
        "GANGLINE_TRACKERS": "mlflow=https://mlflow.example wandb=https://api.wandb.ai",
    }  # fmt: skip
    assert list(programs.program_secrets(trackers, "train")) == [
        "env.MLFLOW_RUN_ID", "env.MLFLOW_TRACKING_TOKEN", "env.WANDB_API_KEY",
    ]  # fmt: skip
    for role in ("evaluate", "prove"):
        assert programs.program_variables(record, trackers, role) == {"GANGLINE_TRACKERS": "mlflow= wandb="}
        assert list(programs.program_secrets(trackers, role)) == []
    offline = programs.program_variables(record, {"wb": replace(WB, mode="offline")}, "train")
    assert offline["GANGLINE_TRACKERS"] == "wandb="
    assert programs.program_variables(record, {}, "train") == {}


def test_ranks_that_do_not_write_get_trackers_that_keep_nothing_and_no_token():
    given = {
        "GANGLINE_TRACKERS": "mlflow=https://mlflow.example wandb=https://api.wandb.ai", "RANK": "1",
        "MLFLOW_TRACKING_URI": "https://mlflow.example", "MLFLOW_RUN_ID": "a" * 32, "MLFLOW_TRACKING_TOKEN": "t",
        "WANDB_RUN_ID": "r", "WANDB_API_KEY": "k", "WANDB_MODE": "online",
    }  # fmt: skip
    assert tracking_environ(given, writes=True, home=Path("/gang")) == given
    other = tracking_environ(given, writes=False, home=Path("/gang"))
    assert {name: text for name, text in other.items() if name not in ("GANGLINE_TRACKERS", "RANK")} == {
        "MLFLOW_TRACKING_URI": "file:///gang/mlflow", "MLFLOW_ALLOW_FILE_STORE": "true", "WANDB_MODE": "disabled",
    }  # fmt: skip
    away = tracking_environ(given | {"MLFLOW_RUN_ID": ""}, writes=True, home=Path("/gang"))
    assert (away["MLFLOW_TRACKING_URI"], away["WANDB_RUN_ID"]) == ("file:///gang/mlflow", "r")
    assert "MLFLOW_RUN_ID" not in away
    free = {"MLFLOW_TRACKING_URI": "http://own", "WANDB_API_KEY": "own"}
    assert tracking_environ(free, writes=False, home=Path("/gang")) == free


@pytest.fixture
def workspace(tmp_path):
    repo = repositories.make_repository(tmp_path / "repo")
    return Workspace(repo, Site(), {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")})


def test_a_gang_asks_for_no_token_of_a_tracker_that_its_run_does_not_join(workspace):
    there = replace(
        workspace, site=Site(track={"ours": replace(OURS, programs=False)}), environ=workspace.environ | {"TOKEN": "t0"}
    )
    record = make_record()
    there.store.put(f"{record.prefix}/record.json", there.sealer.seal(record).to_json())
    read = secret_reader(there.store, there.site, there.environ, rights_of(record), repo=there.repo)
    with pytest.raises(IntegrityError, match="MLFLOW_TRACKING_TOKEN of a tracker, and its run joins none"):
        read("env.MLFLOW_TRACKING_TOKEN")
    joins = Site(track={"ours": OURS})
    assert secret_reader(there.store, joins, there.environ, rights_of(record), repo=there.repo)(
        "env.MLFLOW_TRACKING_TOKEN"
    ) == b"t0"  # fmt: skip
    fork = replace(record, commit=replace(record.commit, trust="fork"))
    with pytest.raises(IntegrityError, match="its run joins none"):
        secret_reader(there.store, joins, there.environ, rights_of(fork), repo=there.repo)("env.MLFLOW_TRACKING_TOKEN")


def seen(workspace, rank):
    """What a rank printed of itself."""
    keys = [entry.key for entry in list_all(workspace.store, "runs/") if entry.key.endswith(f"/logs/{rank}.log")]
    (line,) = [
        line for key in keys for line in workspace.store.get(key).data.decode().splitlines() if line.startswith("SEEN ")
    ]
    return json.loads(line.removeprefix("SEEN "))


@pytest.mark.tools
@pytest.mark.row("TB1")
def test_a_real_program_of_two_ranks_joins_the_run_that_its_driver_mirrors(workspace, mlflow_server, mlflow_client):
    line = repositories.line_with(repositories.LINE, "train.ranks=2")
    repositories.commit(workspace.repo, {"answer.py": JOINS, "line.toml": line})
    tables = {
        "ours": TrackTable(kind="mlflow", url=mlflow_server.url, programs=True, experiment="joined"),
        "wb": TrackTable(kind="wandb", mode="offline", programs=True),
    }
    there = replace(workspace, site=Site(track=tables), environ=workspace.environ | {"PATH": "/usr/bin:/bin"})
    record = there.run()
    experiment = mlflow_client.get_experiment_by_name("joined")
    (run,) = mlflow_client.search_runs([experiment.experiment_id])
    assert run.data.tags["gangline.run"] == record.run.id
    assert [each.value for each in mlflow_client.get_metric_history(run.info.run_id, "loss")] == [
        10.0,
        11.0,
        12.0,
        13.0,
    ]
    mirrored = {each.step: each.value for each in mlflow_client.get_metric_history(run.info.run_id, "gangline/loss")}
    assert mirrored == {point.step: point.value for point in record.curve.points}
    assert run.data.params["train.steps"] == "of the program"
    assert run.data.params["gangline/train.steps"] == "4"
    first, other = seen(there, 0), seen(there, 1)
    assert first["mlflow"][::-1] == run.info.run_id
    assert (first["wandb"], first["offline"]) == (record.run.id, True)
    assert other["wandb"] != record.run.id
    assert not {"MLFLOW_RUN_ID", "MLFLOW_TRACKING_TOKEN", "WANDB_RUN_ID", "WANDB_API_KEY"} & {*other["names"]}


@pytest.mark.tools
@pytest.mark.row("TB2")
def test_a_program_whose_tracker_is_away_trains_and_keeps_nothing(workspace):
    table = TrackTable(kind="mlflow", url="http://127.0.0.1:9", programs=True)
    there = replace(workspace, site=Site(track={"ours": table}), environ=workspace.environ | {"PATH": "/usr/bin:/bin"})
    text = JOINS.replace('run = wandb.init(dir=os.environ["TMPDIR"])', 'run = wandb.init(mode="disabled")')
    repositories.commit(there.repo, {"answer.py": text})
    record = there.run()
    assert record.run.verdict == "passed"
    assert any(event.kind == "tracker" and "gangline track push" in event.text for event in record.events)
    assert [entry.key for entry in list_all(there.store, "runs/") if "mlflow" in entry.key] == []
