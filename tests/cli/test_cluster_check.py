"""What `gangline doctor --cluster` says to an account that may do too little."""

import os

import pytest
import yaml
from tests.cluster.fake.admission import policies
from tests.cluster.fake.api import FakeApi
from tests.cluster.fake.front import kubeconfig, serving
from tests.cluster.fake.server import FakeServer
from tests.launch.kubernetes.cluster.test_workflow_defaults import RECORDED
from typer.testing import CliRunner

from gangline.cli.cluster_check import check_cluster
from gangline.cli.main import app
from gangline.cli.workspace import Workspace
from gangline.launch.sandbox.engines import Bubblewrap, Unconfined
from gangline.line.gangs import sandbox
from gangline.spec.config.site import LaunchTable, Site, StoreTable


@pytest.fixture
def server():
    server = FakeServer()
    server.add_namespace("gangs")
    return server


def findings(server, folder, *, route="auto", **tables):
    with serving(server) as url:
        environ = {**os.environ, "KUBECONFIG": str(kubeconfig(folder / "config", url))}
        site = Site(launch=LaunchTable(target="kubernetes", namespace="gangs", route=route), **tables)
        found, _ = check_cluster(Workspace(repo=folder, site=site, environ=environ))
    return {each.name: each for each in found}


def test_versions_are_reported_next_to_those_that_were_seen_to_work(tmp_path):
    server = FakeServer(serve=("kueue",))
    server.add_namespace("gangs")
    found = findings(server, tmp_path)
    assert str(found["kubernetes"]) == "kubernetes 1.34.4 ok (seen: 1.34.4)"
    assert str(found["kueue version"]) == (
        "kueue version unknown: no controller in its usual place has an image with a version that this account may see"
        " (seen: 0.19.2)"
    )
    assert "pipelines version" not in found


def test_kubeflow_that_tries_no_failed_task_again_is_named_with_what_it_means(server, tmp_path):
    assert "retries of pipelines" not in findings(server, tmp_path)
    server.add_namespace("kubeflow")
    api = FakeApi(server=server)
    api.create("/api/v1/namespaces/kubeflow/configmaps", yaml.safe_load(RECORDED.read_text()))
    found = findings(server, tmp_path)["retries of pipelines"]
    assert (found.ok, found.needed) == (False, False)
    assert found.without == (
        "a task that fails or is evicted ends its pipeline, as kubeflow/workflow-controller-configmap has retryPolicy"
        " OnError; docs/guides/kubeflow.md changes it"
    )
    server.denied.add(("get", "configmaps"))
    assert "retries of pipelines" not in findings(server, tmp_path)


def test_scheduler_that_the_route_names_is_looked_for_in_kueues_place(tmp_path):
    server = FakeServer(serve=("volcano",))
    server.add_namespace("gangs")
    found = findings(server, tmp_path, route="volcano")
    assert str(found["volcano"]) == "volcano ok, queues none at all"
    assert "kueue" not in found
    kai = findings(server, tmp_path, route="kai")["kai"]
    assert not kai.ok
    assert kai.needed
    assert kai.without == 'no gang starts by launch.route = "kai"; "gates" works without it'


def test_missing_rights_are_counted_and_named(server, tmp_path):
    server.denied |= {("create", "jobs.batch"), ("list", "pods")}
    rights = findings(server, tmp_path)["rights"]
    assert not rights.ok
    assert rights.text == "this account lacks 2"
    assert rights.without == "ask for create jobs.batch; list pods"


def test_account_that_may_not_be_looked_at_is_not_called_missing(server, tmp_path):
    server.denied.add(("get", "serviceaccounts"))
    account = findings(server, tmp_path)["account"]
    assert not account.ok
    assert "lacks the right `get` on `serviceaccounts`" in account.text
    assert account.without == "ask for that right"


def test_account_that_is_missing_can_be_made_by_the_command_shown(server, tmp_path):
    command = "kubectl -n gangs create serviceaccount gangline-gang"
    assert findings(server, tmp_path)["account"].without == f"make it: {command}"


def test_account_without_a_placer_learns_whether_it_may_place_its_own_gangs(server, tmp_path):
    assert findings(server, tmp_path)["placer"].ok
    server.denied |= {("patch", "pods"), ("patch", "jobs.batch/status"), ("list", "nodes")}
    placer = findings(server, tmp_path)["placer"]
    assert not placer.ok
    assert placer.text == "none"
    assert placer.without.endswith("lacks patch jobs.batch/status; patch pods; list nodes of the cluster")


@pytest.mark.row("A3")
def test_namespace_without_our_policies_is_reported_with_what_that_means(server, tmp_path):
    admission = findings(server, tmp_path)["admission"]
    assert (admission.ok, admission.needed) == (False, False)
    assert admission.without.startswith(
        "any account that may create Jobs in gangs may mount every Secret of it; kubectl apply"
    )
    server.policies = policies()
    assert findings(server, tmp_path)["admission"].ok
    assert list(server.store.all_of(server.kind("jobs.batch"), "gangs")) == []


@pytest.mark.row("A3")
def test_account_that_sees_secrets_is_shown_which_of_its_rights_show_them(server, tmp_path):
    server.denied |= {(verb, "secrets") for verb in ("get", "list", "watch", "delete")}
    secrets = findings(server, tmp_path)["secrets"]
    assert not secrets.ok
    assert secrets.without.startswith("this account may patch every Secret of gangs, and their answers show them;")
    server.denied.add(("patch", "secrets"))
    assert findings(server, tmp_path)["secrets"].ok


@pytest.mark.parametrize(
    ("store", "ok", "said"),
    [
        (StoreTable(), False, "store file:.gangline/store"),
        (StoreTable(url="s3://bucket"), False, "store pods are given s3://bucket"),
        (StoreTable(url="s3://bucket?endpoint=http://a"), True, "store pods are given s3://bucket?endpoint=http://a"),
        (StoreTable(url="s3://bucket", endpoint="http://a"), True, "store pods are given http://a"),
        (
            StoreTable(url="s3://bucket", endpoint="http://a", cluster_endpoint="http://b"),
            True,
            "store pods are given http://b",
        ),
    ],
)
def test_store_is_fit_for_pods_where_they_are_given_an_endpoint(server, tmp_path, store, ok, said):
    found = findings(server, tmp_path, store=store)["store"]
    assert (found.ok, str(found)) == (ok, said)


def test_site_without_an_image_is_informed(server, tmp_path):
    assert findings(server, tmp_path)["image"].text == "the site names none"


def test_doctor_needs_no_model_repository_to_look_at_a_cluster(server, tmp_path, monkeypatch):
    for name in ("GANGLINE_SITE", "GANGLINE_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    with serving(server) as url:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "config", url)))
        result = CliRunner().invoke(app, ["doctor", "--cluster", "--repo", str(tmp_path)])
    assert "kubernetes 1.34.4 ok" in result.stdout


@pytest.mark.row("P10")
@pytest.mark.parametrize(
    ("hides", "text"), [(True, "bubblewrap"), (False, "a pod of the cluster, because this machine has")]
)
def test_where_model_code_runs_next_to_gangs_is_reported(server, tmp_path, monkeypatch, hides, text):
    engine = Bubblewrap("/usr/bin/bwrap", None) if hides else Unconfined("no bwrap")
    monkeypatch.setattr(sandbox, "find_engine", lambda *_, **__: engine)
    found = findings(server, tmp_path)["model code"]
    assert found.ok
    assert found.text.startswith(text)
