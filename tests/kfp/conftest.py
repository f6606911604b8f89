"""A workspace whose site has a pipelines server: a stub whose tasks run here."""

import pytest
from tests.kfp import stub as pipelines
from tests.kfp.pods import IMAGE, Pods
from tests.line import conftest as line_conftest

from gangline.kfp import server_runner, task_config
from gangline.launch.sandbox.policy import Sandbox
from gangline.line.gangs import launchers, sandbox
from gangline.line.stages import model_inspection
from gangline.signing.keys import signing_key
from gangline.spec.config.site import KfpTable, Site, StoreTable
from gangline.storage import site_paths

workspace = line_conftest.workspace


@pytest.fixture
def pods():
    return Pods()


@pytest.fixture
def cluster(workspace, pods, tmp_path, monkeypatch):
    """A workspace whose site has a pipelines server; tasks mount its secret and reach its store."""
    mount = tmp_path / "mount" / "gangline-line"
    mount.mkdir(parents=True)
    signing_key(workspace.site, workspace.environ)
    (mount / "sign-key").write_bytes(key_file(tmp_path).read_bytes())
    monkeypatch.setattr(task_config, "MOUNT", tmp_path / "mount")
    settled = model_inspection.inspection_cache_file  # no pod imports torch to look at its machine
    monkeypatch.setattr(
        model_inspection, "inspection_cache_file", lambda model, _: settled(model, site_paths.home(workspace.repo))
    )
    monkeypatch.setattr(launchers, "gangs_root", lambda _: tmp_path / "gangs")  # outlive a task, as on a cluster
    monkeypatch.setattr(sandbox, "Sandbox", lambda **words: Sandbox(**words | {"home": None}))  # likewise: one a gang
    monkeypatch.setattr(server_runner, "_require_cluster_store", lambda _: None)
    monkeypatch.setattr(server_runner, "POLL_SECONDS", 0.05)
    with pipelines.serving(pods) as url:
        store = StoreTable(url=f"file:{tmp_path / 'store'}")
        workspace.site = Site(store=store, kfp=KfpTable(endpoint=url, image=IMAGE, ui_url="http://ui.example"))
        yield workspace


def key_file(home):
    (found,) = (path for path in (home / "config").rglob("*") if path.is_file() and b"PRIVATE KEY" in path.read_bytes())
    return found
