"""MLflow's writer against recorded answers of a real server, and those against the server."""

import json
import os
from dataclasses import replace

import pytest
from tests.trackers.mlflow_server import Door
from tests.trackers.recorded import FILE, Player, steady

from gangline.trackers import mlflow
from gangline.trackers.protocol import Point, TrackedRun, WriterSettings

RUN = TrackedRun(
    id="digits-9f31c2a0-k7q2mx", project="digits", experiment="recorded", name="digits-9f31c2a0-k7q2mx",
    status="running", started_ms=1_764_385_200_000, parameters={"train.steps": "3"},
    tags={"gangline.repository": "example.org/digits"},
)  # fmt: skip


def mirror(url):
    """A run from begin to end, and a second driver that begins again."""
    writer = mlflow.open_writer(WriterSettings(kind="mlflow", url=url, token="t"))
    for _ in range(2):
        writer.begin(RUN)
        writer.write([Point("loss", step, 1_764_385_200_000 + step, 1 / step) for step in (1, 2, 3)])
    writer.finish(replace(RUN, status="finished", ended_ms=1_764_385_300_000))
    return writer.look(RUN)


@pytest.mark.row("TB1")
def test_a_run_is_made_once_and_begun_again_by_the_same_requests_as_recorded():
    with Player() as player:
        found = mirror(player.url)
        assert player.differences == []
        assert player.left == []
    made = [each["request"] for each in json.loads(FILE.read_text()) if each["request"][1].endswith("/runs/create")]
    assert len(made) == 1
    assert (found.id, found.step, found.status) == ("0" * 32, 3, "finished")


@pytest.mark.tools
def test_the_real_server_still_answers_as_recorded(mlflow_server):
    with Door(mlflow_server.url, "t") as door:
        mirror(door.url)
    exchanges = [
        {"request": [method, steady(path), steady(body.decode())], "status": status, "answer": steady(data.decode())}
        for method, path, body, status, data in door.exchanges
    ]
    if os.environ.get("RECORD"):
        FILE.write_text(json.dumps(exchanges, indent=1) + "\n")
    assert exchanges == json.loads(FILE.read_text())
