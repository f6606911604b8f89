"""What a task is told, and finds: config, secrets, commits, names."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from kfp import dsl
from tests.line import records, repositories

from gangline.errors import ConfigError, IntegrityError
from gangline.git.repository import Repository
from gangline.kfp import server_runner
from gangline.kfp.run_stage import run_numbers, write_outputs
from gangline.kfp.task_config import TaskConfig, mounted_secrets, secret_names, secret_variables, site_for_tasks
from gangline.kfp.task_repository import highest_tag, restore_history, store_history
from gangline.kfp.worker_process import worker_environment
from gangline.registry import git_tags
from gangline.spec.config.secrets import resolve_secret
from gangline.spec.config.site import ForgeTable, KfpTable, SignTable, Site, StoreTable
from gangline.spec.config.site_tables import FederationTable
from gangline.spec.measurements import Band, Ledger, Metric
from gangline.spec.record import StageInfo
from gangline.storage.open import open_store

SITE = Site(
    store=StoreTable(
        url="s3://b/p",
        endpoint="http://here:9000",
        cluster_endpoint="http://there:9000",
        credentials="secret:env:STORE",
    ),
    forge={"ours": ForgeTable(kind="gitea", token="secret:env:FORGE")},
    kfp=KfpTable(endpoint="http://127.0.0.1:1", token="secret:env:KFP"),
)


def test_config_travels_as_one_text():
    config = TaskConfig(site=SITE, history="blobs/sha256/0", folder="part", url="http://ui")
    assert TaskConfig.from_text(config.to_text()) == config
    with pytest.raises(IntegrityError, match=r"TaskConfig\.schema"):
        TaskConfig.from_text(config.to_text().replace('"schema":1', '"schema":2'))


def test_tasks_have_a_secret_of_their_own_and_no_ones_tokens():
    theirs = site_for_tasks(SITE)
    assert theirs.store.endpoint == "http://there:9000"
    assert theirs.store.credentials == "secret:k8s:gangline-line/store-credentials"
    assert theirs.sign.key == "secret:k8s:gangline-line/sign-key"
    assert (theirs.forge, theirs.kfp.token) == ({}, None)
    assert secret_names(theirs) == ("gangline-line",)
    kept = site_for_tasks(replace(SITE, sign=SignTable(key="secret:k8s:vault/key")))
    assert kept.sign.key == "secret:k8s:vault/key"
    assert secret_names(kept) == ("gangline-line", "vault")


def test_tasks_get_no_kit_of_a_federation():
    kits = FederationTable(kit="secret:k8s:gangline-kit/server.tar", admin="secret:k8s:gangline-kit-lead/admin.tar")
    theirs = site_for_tasks(replace(SITE, federation=kits))
    assert secret_names(theirs) == ("gangline-line",)
    assert mounted_secrets(Site(federation=kits), {})[0].federation == kits


def test_tasks_have_the_role_of_their_pod_where_the_site_asks_for_a_role():
    roles = replace(SITE, store=replace(SITE.store, credentials="aws:role"))
    assert site_for_tasks(roles).store.credentials == "aws:role"
    profile = replace(SITE, store=replace(SITE.store, credentials="aws:profile:lab"))
    assert site_for_tasks(profile).store.credentials == "secret:k8s:gangline-line/store-credentials"


def test_tasks_on_this_machine_find_the_identity_of_aws_that_the_site_names(tmp_path):
    roles = replace(SITE, store=replace(SITE.store, credentials="aws:role"))
    environ = {"AWS_ROLE_ARN": "arn", "AWS_WEB_IDENTITY_TOKEN_FILE": "/token", "AWS_SECRET_ACCESS_KEY": "of another"}
    passed = [worker_environment(environ, secret_variables(each), tmp_path) for each in (roles, SITE)]
    assert [sorted(each.keys() & environ.keys()) for each in passed] == [
        ["AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE"], [],
    ]  # fmt: skip


def test_mounted_secrets_are_found_and_a_missing_one_is_named(tmp_path):
    theirs = site_for_tasks(SITE)
    with pytest.raises(ConfigError, match=r"secret:k8s:gangline-line/(sign-key|store-credentials).*mounted"):
        mounted_secrets(theirs, {}, mount=tmp_path)
    (tmp_path / "gangline-line").mkdir()
    (tmp_path / "gangline-line" / "store-credentials").write_text("access:secret\n")
    (tmp_path / "gangline-line" / "sign-key").write_text("PEM\n")
    site, environ = mounted_secrets(theirs, {"HOME": "/home"}, mount=tmp_path)
    assert resolve_secret(site.store.credentials, environ) == "access:secret"
    assert resolve_secret(site.sign.key, environ) == "PEM"
    assert environ["HOME"] == "/home"
    assert mounted_secrets(SITE, {"A": "b"}, mount=tmp_path) == (SITE, {"A": "b"})


def test_a_task_gets_the_variables_that_its_site_names_and_no_other(tmp_path):
    environ = {"STORE": "a:b", "KFP": "t", "OTHER": "canary", "KUBECONFIG": "/k", "HOME": "/home/me"}
    seen = worker_environment(environ, secret_variables(SITE), tmp_path)
    assert {"STORE", "KFP", "KUBECONFIG", "HOME"} <= seen.keys()
    assert "canary" not in seen.values()
    assert seen["TMPDIR"] == str(tmp_path)


def test_a_task_looks_back_at_the_commits_without_their_files(tmp_path):
    repo = repositories.make_repository(tmp_path / "repo", {"part/line.toml": repositories.LINE, "big": "x" * 10_000})
    for number in range(60):
        repositories.commit(repo, {"part/word": str(number)})
    newest = repositories.git(repo, "rev-parse", "HEAD")
    store = open_store(f"file:{tmp_path / 'store'}")
    key = store_history(Repository.at(repo / "part"), newest, store)
    assert len(store.get(key).data) < 100_000
    restore_history(store, key, tmp_path / "task")
    (tmp_path / "task" / "part").mkdir()
    there, here = Repository.at(tmp_path / "task" / "part"), Repository.at(repo / "part")
    assert list(there.ancestors(newest, 50)) == list(here.ancestors(newest, 50))
    assert not (tmp_path / "task" / "big").exists()
    assert not list((tmp_path / "task" / ".git").rglob("hooks"))


def test_an_older_commit_than_the_newest_is_kept_as_well(tmp_path):
    repo = repositories.make_repository(tmp_path / "repo")
    first = repositories.git(repo, "rev-parse", "HEAD")
    repositories.commit(repo, {"word": "later"})
    store = open_store(f"file:{tmp_path / 'store'}")
    restore_history(store, store_history(Repository.at(repo), first, store), tmp_path / "task")
    log = ["git", "-C", str(tmp_path / "task"), "log", "--format=%H"]
    assert subprocess.run(log, capture_output=True, text=True, check=True).stdout.split() == [first]


def test_a_task_numbers_its_version_above_the_tags_that_are_known_where_the_pipeline_was_called(tmp_path):
    repo = repositories.make_repository(tmp_path / "repo")
    for tag in ("model/cheap/v2", "model/cheap/v10", "model/other/v99", "model/cheap/vX"):
        repositories.git(repo, "tag", tag)
    found = highest_tag(repo, records.record())
    assert found == ("cheap", 10)
    store = open_store(f"file:{tmp_path / 'store'}")
    key = store_history(Repository.at(repo), repositories.git(repo, "rev-parse", "HEAD"), store, highest=found)
    restore_history(store, key, tmp_path / "task")
    assert git_tags.taken_numbers(tmp_path / "task", "cheap") == {10}
    assert git_tags.taken_numbers(tmp_path / "task", "other") == set()


def test_the_remotes_tags_count_where_the_line_pushes_to_it(tmp_path):
    remote = repositories.make_repository(tmp_path / "remote")
    repositories.git(remote, "tag", "model/cheap/v7")
    repo = repositories.make_repository(tmp_path / "repo")
    repositories.git(repo, "remote", "add", "origin", str(remote))
    silent = records.record()
    pushes = replace(silent, inputs=replace(silent.inputs, values={"publish.push": True}))
    assert [highest_tag(repo, each) for each in (silent, pushes)] == [("cheap", 0), ("cheap", 7)]


@pytest.mark.parametrize("branch", ["main", "feature/x", None, "$(rm -rf)\u202e\n" + "b" * 300])
def test_names_are_plain_and_lead_back(branch):
    record = records.record(branch=branch)
    for name in (
        server_runner.run_name(record),
        server_runner.experiment_name(record),
        server_runner.version_name(record),
    ):
        assert len(name) <= server_runner.MAX_NAME
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/-")
    assert server_runner.run_name(records.record()) == "9f31c2a0-main-a1"
    assert server_runner.version_name(records.record()) == f"{records.SHA}-bbbbbbbb"
    assert server_runner.run_id_of_url(server_runner.run_url(Site(kfp=KfpTable(ui_url="http://ui/")), "id-7")) == "id-7"


def test_numbers_of_a_run_have_names_that_stay_and_are_finite(tmp_path):
    class Logs:
        path = str(tmp_path / "page")

        def __init__(self):
            self.metrics = {}

        def log_metric(self, name, value):
            self.metrics[name] = value

    record = replace(
        records.record(),
        metrics={"loss": Metric(value=2.5), "eval_loss": Metric(value=float("inf"))},
        ledger=Ledger(resource="cpu", allocated_seconds=10.0, seconds={"compute": 5.0}),
    )
    assert run_numbers(record) == {"allocated_seconds": 10.0, "loss": 2.5, "useful_share": 0.5}
    untold = replace(record, ledger=Ledger(resource="cpu", allocated_seconds=10.0, seconds={"other": 10.0}))
    assert run_numbers(untold) == {"allocated_seconds": 10.0, "loss": 2.5}
    shown = Logs()
    write_outputs(record, None, {"metrics": shown, "verdict": shown})
    assert shown.metrics["loss"] == 2.5
    assert record.run.id in (tmp_path / "page").read_text()


@pytest.mark.parametrize(("state", "outputs", "message", "facts"), [
    ("done", {"model": "cheap", "version": 3, "key": "models/cheap/3.json"}, "cheap 3",
     {"model": "cheap", "version": 3, "key": "models/cheap/3.json"}),
    ("skipped", {}, "feature is no branch that publishes", {"not_published": "feature is no branch that publishes"}),
])  # fmt: skip
def test_a_published_version_is_a_model_of_the_pipeline(tmp_path, state, outputs, message, facts):
    model = dsl.Model(uri=str(tmp_path / "model"))
    published = StageInfo(state=state, outputs=outputs, message=message)
    write_outputs(replace(records.record(), stages={"publish": published}), None, {"model": model})
    assert model.metadata == json.loads(Path(model.path).read_text()) == facts


def test_the_band_of_the_headline_metric_is_a_number_too():
    own, base = (Band(center=center, half=0.1, n=3, origin="r") for center in (2.0, 3.0))
    metric = Metric(value=2.5, band=own)
    assert run_numbers(replace(records.record(), metrics={"loss": metric}))["loss_band_center"] == 2.0
    judged = run_numbers(replace(records.record(), metrics={"loss": replace(metric, base_band=base)}))
    assert (judged["loss_band_center"], judged["loss_band_half"]) == (3.0, 0.1)


def test_a_task_imports_nothing_that_only_other_drivers_need():
    """A process for each: structlog alone, there for an event that is rare, brought rich and asyncio along."""
    rest = [
        "structlog",
        "rich",
        "asyncio",
        "tomllib",
        "kubernetes",
        "gangline.line.run.create",
        "gangline.spec.config.load",
    ]
    code = (
        "import sys, kfp.dsl.executor_main, gangline.kfp.run_stage\n"
        f"print([name for name in {rest!r} if name in sys.modules])"
    )
    environ = {**os.environ, "_KFP_RUNTIME": "true"}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
