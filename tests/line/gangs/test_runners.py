"""Where model code runs once: the sandbox of this machine, or a pod where that hides nothing and ranks are pods."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.line import repositories

from gangline.errors import ConfigError
from gangline.launch.kubernetes.module_runner import PodRunner
from gangline.launch.sandbox.engines import Bubblewrap, OtherUser, Unconfined
from gangline.launch.sandbox.module_runner import ModuleJob
from gangline.launch.sandbox.process_runner import ProcessRunner
from gangline.line.gangs import sandbox
from gangline.line.gangs.runners import CodeOwner, code_isolation, open_runner
from gangline.line.stages.preview import preview
from gangline.spec.config.site import LaunchTable, RegistryTable, SandboxTable, Site, StoreTable
from gangline.storage.open import open_store

pytestmark = pytest.mark.row("P10")
ENGINES = {"bubblewrap": Bubblewrap("/usr/bin/bwrap", None), "user": OtherUser(65532), "none": Unconfined("no bwrap")}
CLUSTER = Site(launch=LaunchTable(target="kubernetes"))
SUBJECT = CodeOwner(run="demo-1", project="demo", commit="c" * 40, trust="own", image="x@sha256:" + "0" * 64)


@pytest.fixture
def repo(tmp_path):
    return repositories.make_repository(tmp_path / "repo")


def chosen(repo, monkeypatch, engine, *, site=CLUSTER, trust="own"):
    monkeypatch.setattr(sandbox, "find_engine", lambda *_, **__: ENGINES[engine])
    store = open_store(f"file:{repo / 'store'}")
    runner = open_runner(replace(SUBJECT, trust=trust), repo, site=site, environ={}, store=store)
    reported = code_isolation(repo, trust, site=site, environ={})
    assert (reported.engine == "pod") == isinstance(runner, PodRunner)
    return runner, reported


@pytest.mark.parametrize("trust", ["own", "fork"])
@pytest.mark.parametrize(("engine", "kind"), [("bubblewrap", ProcessRunner), ("user", PodRunner), ("none", PodRunner)])
def test_machine_that_hides_runs_it_itself(repo, monkeypatch, engine, kind, trust):
    runner, reported = chosen(repo, monkeypatch, engine, trust=trust)
    assert isinstance(runner, kind)
    assert reported.warning == "", "nothing is open in any of these"


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_where_ranks_run_on_this_machine_no_pod_does(repo, monkeypatch, engine):
    assert isinstance(chosen(repo, monkeypatch, engine, site=Site())[0], ProcessRunner)


def test_mode_off_is_for_own_commits_alone(repo, monkeypatch):
    off = replace(CLUSTER, sandbox=SandboxTable(mode="off"))
    own, reported = chosen(repo, monkeypatch, "none", site=off)
    assert isinstance(own, ProcessRunner)
    assert "keys included" in reported.warning
    assert isinstance(chosen(repo, monkeypatch, "none", site=off, trust="fork")[0], PodRunner)


def test_store_that_pods_do_not_reach_is_an_error_of_the_site(repo, monkeypatch):
    runner, _ = chosen(repo, monkeypatch, "none")
    with pytest.raises(ConfigError, match=r"wanted a store that pods can reach, s3://bucket/prefix, found file:"):
        runner.run(ModuleJob(module="start", seconds=1.0, trust="own"))


def test_pods_get_a_url_of_the_store_by_its_address_there(repo, monkeypatch):
    table = StoreTable(
        url="s3://models", endpoint="http://127.0.0.1:9000", cluster_endpoint="http://minio.store.svc:9000",
        credentials="secret:env:STORE",
    )  # fmt: skip
    site, environ = replace(CLUSTER, store=table), {"STORE": "someone:their-secret"}
    monkeypatch.setattr(sandbox, "find_engine", lambda *_, **__: ENGINES["none"])
    store = open_store("s3://models", endpoint="http://127.0.0.1:9000", credentials="someone:their-secret")
    runner = open_runner(SUBJECT, repo, site=site, environ=environ, store=store)
    url = runner.pods_store().presign("once/x.tar", 60)
    assert url.startswith("http://minio.store.svc:9000/models/once/x.tar?")
    assert "their-secret" not in url


def test_preview_without_an_image_says_what_to_set(repo, monkeypatch, tmp_path):
    monkeypatch.setattr(sandbox, "find_engine", lambda *_, **__: ENGINES["none"])
    site = replace(
        CLUSTER, registry=RegistryTable(),
        store=StoreTable(url=f"file:{tmp_path / 'store'}"),
    )  # fmt: skip
    with pytest.raises(ConfigError, match=r"pods need an image; set registry.base"):
        preview(Path(repo), site=site, environ={"HOME": str(tmp_path)})
