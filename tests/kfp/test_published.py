"""A model that a pipeline publishes: signed, in the store, and with a tag in the repository of whoever called it."""

import shutil
from dataclasses import replace
from pathlib import Path
from secrets import token_hex

import pytest
from tests.kfp.driving import kfp_run
from tests.kfp.pods import server_run
from tests.line import repositories

from gangline.kfp.task_repository import tag_version
from gangline.registry.versions import read_version
from gangline.spec.config.site import StoreTable
from gangline.spec.run_flags import stage

pytestmark = [pytest.mark.slow, pytest.mark.timeout(280)]
BYTEGPT = Path(__file__).parents[2] / "examples" / "bytegpt"
SMALL = (
    "model.layers=1", "model.width=32", "model.context=32", "train.steps=4", "train.ranks=1", "train.strategy=auto",
    "evaluate.seeds=1", "prove.plan=off", "prove.replay_steps=4", "publish.smoke=false",
)  # fmt: skip


@pytest.fixture
def gpt(workspace, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    shutil.copytree(BYTEGPT, workspace.repo, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    line = repositories.line_with((BYTEGPT / "line.toml").read_text("utf-8"), *SMALL)
    text = "the quick brown fox jumps over the lazy dog\n" * 400
    repositories.commit(workspace.repo, {"line.toml": line, "src/text.py": text})
    return workspace


def demand_version(workspace, record, number=1):
    """That version is there, signed, and the tag that leads to it stands on the commit."""
    made = stage(record, "publish").outputs
    assert (made["model"], made["version"]) == ("bytegpt", number)
    assert read_version(workspace.store, "bytegpt", number).commit == record.commit.sha
    assert repositories.git(workspace.repo, "rev-parse", f"model/bytegpt/v{number}^{{commit}}") == record.commit.sha
    kept = {each.kind: each for each in record.artifacts}
    assert workspace.store.get(kept["signature"].key).data
    assert all(workspace.store.head(each.key) is not None for each in record.artifacts)


def test_under_the_local_runner(gpt):
    demand_version(gpt, kfp_run(gpt))


@pytest.mark.tools
def test_by_tasks_of_a_server_that_have_a_store_and_no_repository(gpt, cluster, minio_server, tmp_path):
    cluster.environ["STORE"] = minio_server.credentials
    mount = tmp_path / "mount" / "gangline-line"
    (mount / "store-credentials").write_text(minio_server.credentials)
    store = StoreTable(
        url=f"s3://{minio_server.bucket}/{token_hex(4)}", endpoint=minio_server.endpoint, credentials="secret:env:STORE"
    )
    cluster.site = replace(cluster.site, store=store)
    of_another_store = "model/bytegpt/v1"
    repositories.git(cluster.repo, "tag", of_another_store)
    record = server_run(cluster)
    demand_version(cluster, record, 2)
    repositories.git(
        cluster.repo, "tag", "--force", "model/bytegpt/v2", of_another_store
    )  # came while the pipeline ran
    tag_version(cluster.repo, record, cluster.store, cluster.seen)
    assert "the tag model/bytegpt/v2 is of another" in cluster.seen.notes[-1]
    assert "gangline run --again" in cluster.seen.notes[-1]
