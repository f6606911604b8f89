"""The owner of a pipeline's gangs: found through the pod of the task, in its own namespace alone."""

from dataclasses import replace

import pytest
from tests.cluster.fake.api import FakeApi

from gangline.build import own_environment
from gangline.kfp.run_stage import find_workflow, run_stage
from gangline.kfp.task_config import TaskConfig
from gangline.launch.kubernetes.cluster.rights import DRIVER
from gangline.line.gangs import launchers, podsets
from gangline.line.stages import model_inspection
from gangline.spec.config.site import LaunchTable, RegistryTable, Site, StoreTable

IMAGE = "registry.example/train@sha256:" + "a1" * 32
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "server-1", "labels": {"kubernetes.io/hostname": "server-1"}},
    "spec": {},
    "status": {
        "allocatable": {"cpu": "16", "memory": "64Gi", "ephemeral-storage": "100Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}
PODS = "/api/v1/namespaces/gangs/pods"
WORKFLOW = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "train-line-x7", "uid": "w-1"}


@pytest.fixture
def api():
    return FakeApi()


def pod(api, *owners, name="train-line-x7-system-container-impl-1"):
    made = api.create(
        PODS,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "ownerReferences": list(owners)},
            "spec": {"containers": [{"name": "main", "image": "line"}]},
        },
    )
    return {"KFP_POD_NAME": name, "KFP_POD_UID": made["metadata"]["uid"]}


def test_the_workflow_that_made_the_pod_owns_its_gangs_and_is_not_read_itself(api):
    environ = pod(api, WORKFLOW | {"controller": True, "blockOwnerDeletion": True})
    assert find_workflow(api, environ, here="gangs") == {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "train-line-x7", "uid": "w-1"},
    }
    assert set(api.calls) == {("create", "pods"), ("get", "pods")}


def test_gangs_in_a_namespace_of_their_own_have_no_owner(api):
    environ = pod(api, WORKFLOW | {"controller": True})
    assert find_workflow(FakeApi("elsewhere", server=api.server), environ, here=None) is None


def test_a_pod_that_only_has_the_same_name_is_not_ours(api):
    environ = pod(api, WORKFLOW | {"controller": True})
    assert find_workflow(api, environ | {"KFP_POD_UID": "another"}, here="gangs") is None


@pytest.mark.parametrize(
    "owners", [(), (WORKFLOW | {"controller": False},), (WORKFLOW | {"kind": "Job", "controller": True},)]
)
def test_a_pod_that_no_workflow_controls_gives_no_owner(api, owners):
    assert find_workflow(api, pod(api, *owners), here=None) is None


def test_a_process_that_is_not_a_task_of_a_server_asks_nothing(api):
    assert find_workflow(api, {}, here="gangs") is None
    assert not api.calls


def test_shipped_rights_are_enough_where_gangs_have_a_namespace_of_their_own(api):
    """The account of tasks has the driver's Role there, which reads no pod by name: it is not asked for."""
    environ = pod(api, WORKFLOW | {"controller": True})
    driver = FakeApi(server=api.server, rights=DRIVER)
    assert find_workflow(driver, environ, here="kubeflow") is None
    assert not driver.calls


@pytest.mark.parametrize("here", [None, "gangs"])
def test_an_account_that_may_not_read_its_pod_starts_gangs_without_an_owner(api, here):
    environ = pod(api, WORKFLOW | {"controller": True})
    assert find_workflow(FakeApi(server=api.server, rights=DRIVER), environ, here=here) is None


def test_a_gang_that_a_pipeline_starts_goes_with_its_workflow(workspace, api, monkeypatch):
    environ = pod(api, WORKFLOW | {"controller": True})
    for name, value in (environ | workspace.environ).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(launchers, "open_cluster", lambda *_: api)
    settled = model_inspection.inspection_cache_file
    here = own_environment.interpreter_digest()  # what the workspace has settled, for an image, too
    monkeypatch.setattr(
        model_inspection, "inspection_cache_file", lambda model, home: settled(replace(model, environment=here), home)
    )
    monkeypatch.setattr(podsets, "pod_store_url", lambda *_: "s3://bucket/prefix?endpoint=http://store:9000")
    api.create("/api/v1/nodes", NODE)
    api.patch("/api/v1/nodes/server-1/status", NODE)
    store = f"file:{workspace.repo.parent / 'store'}"
    workspace.site = Site(
        store=StoreTable(url=store),
        registry=RegistryTable(base=IMAGE),
        launch=LaunchTable(target="kubernetes", launcher="job"),
    )
    run = workspace.run(until="plan").run.id
    run_stage("submit", run=run, config=TaskConfig(site=workspace.site, repo=str(workspace.repo)).to_text())
    (job,), _ = api.items("/apis/batch/v1/namespaces/gangs/jobs")
    assert [(each["kind"], each["uid"]) for each in job["metadata"]["ownerReferences"]] == [("Workflow", "w-1")]
