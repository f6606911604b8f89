"""Published versions and aliases in MLflow's registry, from a real store to a real server."""

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from tests.registry.passed_run import copy_of, template
from tests.registry.test_promote import point, second_version
from tests.trackers.mlflow_server import Door

from gangline.errors import GateError
from gangline.line.run.run_models import _ModelMirror, mirror_models
from gangline.registry.versions import read_alias
from gangline.spec.config.site import Site
from gangline.spec.config.site_tables import TrackTable
from gangline.trackers.writer_process import WriterFailed, WriterProcess, writer_settings

pytestmark = pytest.mark.tools


@pytest.fixture
def workspace(tmp_path, tmp_path_factory, mlflow_server, mlflow_client):
    """A store whose model has two versions; the server does not know it yet."""
    made = copy_of(template(tmp_path_factory, "published")[0], tmp_path / "root")
    made.site = replace(
        made.site, track={"ours": TrackTable(kind="mlflow", url=mlflow_server.url, models=True, experiment="models")}
    )
    assert second_version(made) == 2
    yield made
    for model in mlflow_client.search_registered_models():
        mlflow_client.delete_registered_model(model.name)


def mirror(workspace, version=None):
    return list(
        mirror_models(
            workspace.store, "bytegpt", version, repo=workspace.repo, site=workspace.site,
            environ=workspace.environ | {"PATH": "/usr/bin:/bin"},
        )
    )  # fmt: skip


def ours(client):
    """Our numbers of the versions that the server has."""
    rows = client.search_model_versions("name = 'bytegpt'")
    return sorted(int(row.tags["gangline.version"]) for row in rows)


def alias(client, name="production"):
    return int(client.get_model_version_by_alias("bytegpt", name).tags["gangline.version"])


@pytest.mark.row("TB4")
def test_versions_and_aliases_are_there_once_with_their_source_and_what_made_them(workspace, mlflow_client):
    point(workspace, 1)
    for _ in range(2):
        assert mirror(workspace, 2) == []
    assert ours(mlflow_client) == [1, 2]
    assert alias(mlflow_client) == 1
    version = mlflow_client.get_model_version_by_alias("bytegpt", "production")
    assert version.source.startswith("gangline://bytegpt/")
    assert version.tags["gangline.run"] == workspace.record.run.id
    assert version.tags["gangline.key"] == "models/bytegpt/1.json"


@pytest.mark.row("TB4")
def test_an_alias_that_somebody_moved_there_is_put_back_and_named(workspace, mlflow_client):
    point(workspace, 1)
    mirror(workspace, 2)
    rows = mlflow_client.search_model_versions("name = 'bytegpt'")
    other = next(row for row in rows if row.tags["gangline.version"] == "2")
    foreign = mlflow_client.create_model_version("bytegpt", "s3://elsewhere/model", await_creation_for=0)
    mlflow_client.set_registered_model_alias("bytegpt", "theirs", other.version)
    for moved, named in ((other, "version 2"), (foreign, "a version that is not ours, 3 of MLflow")):
        mlflow_client.set_registered_model_alias("bytegpt", "production", moved.version)
        (sentence,) = mirror(workspace)
        assert sentence.startswith(f"ours: bytegpt@production named {named}")
        assert sentence.endswith("is version 1 again")
        assert alias(mlflow_client) == 1
    aliases = mlflow_client.get_registered_model("bytegpt").aliases
    assert aliases["theirs"] == other.version
    point(workspace, 2)
    assert mirror(workspace) == []  # the tracker was only behind
    assert alias(mlflow_client) == 2


@pytest.mark.row("TB4")
def test_racing_moves_of_an_alias_end_as_the_store_has_it(workspace, mlflow_client, seed):
    point(workspace, 1)
    settings = writer_settings(workspace.repo, workspace.site, "ours", environ=workspace.environ)
    table = workspace.site.track["ours"]

    def mirrored(process):
        """As `mirror_models` does it, until a busy server took all of it; the process that is open then."""
        for _ in range(5):
            if process is None:
                process = WriterProcess(settings, table=table, environ={"PATH": "/usr/bin:/bin"})
                process.open()
            try:
                list(_ModelMirror(workspace.store, "bytegpt", "ours", workspace.site, process).write(None))
            except WriterFailed:
                process = process.end()
            else:
                return process
        raise AssertionError("the server took nothing in 5 tries")

    def move(number):
        order, process, moves = random.Random(f"{seed} {number}"), None, 0
        while moves < 50:
            try:
                point(workspace, order.choice((1, 2)))
            except GateError:
                continue
            moves += 1
            if moves % 5 == 0:
                process = mirrored(process)
        process.end()
        return moves

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(move, range(4))) == 200
    assert alias(mlflow_client) == read_alias(workspace.store, "bytegpt", "production").version
    assert ours(mlflow_client) == [1, 2]


def test_nothing_that_a_tracker_does_fails_a_promotion(workspace, mlflow_server, mlflow_client):
    point(workspace, 1)
    mlflow_client.create_registered_model("bytegpt")
    (sentence,) = mirror(workspace, 1)
    assert "belongs to somebody who does not use gangline and is left alone" in sentence
    assert mlflow_client.search_model_versions("name = 'bytegpt'") == []
    with Door(mlflow_server.url, "right") as door:
        workspace.site = Site(track={"ours": replace(workspace.site.track["ours"], url=door.url)})
        (sentence,) = mirror(workspace, 1)
    assert "wanted a token that this server takes" in sentence
    workspace.site = Site(track={"ours": replace(workspace.site.track["ours"], url="http://127.0.0.1:9")})
    (sentence,) = mirror(workspace, 1)
    assert sentence.endswith("gangline track push completes it")


def test_a_tracker_without_models_and_a_project_that_opts_out_send_nothing(workspace, mlflow_client):
    table = workspace.site.track["ours"]
    workspace.site = Site(track={"ours": replace(table, models=False), "tb": TrackTable(kind="tensorboard")})
    assert mirror(workspace, 1) == []
    workspace.site = Site(track={"ours": table})
    inputs = replace(workspace.record.inputs, values=workspace.record.inputs.values | {"project.track": []})
    workspace.place(replace(workspace.record, inputs=inputs))
    assert mirror(workspace, 1) == []
    assert mlflow_client.search_registered_models() == []
