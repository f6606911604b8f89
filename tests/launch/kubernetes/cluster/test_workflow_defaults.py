"""Which tasks Kubeflow Pipelines tries again: by the ConfigMap of a real one, as it is and as the guide changes it."""

import subprocess
from pathlib import Path

import pytest
import yaml
from tests.cluster.fake.api import FakeApi

from gangline.launch.kubernetes.client.api import ApiForbidden
from gangline.launch.kubernetes.cluster.components import (
    NAMESPACE,
    PATH,
    WorkflowDefaults,
    parse_workflow_defaults,
    read_workflow_defaults,
)

RECORDED = Path(__file__).parent / "recorded" / "workflow-controller-configmap.yaml"
ROOT = Path(__file__).parents[4]


def config_map(text):
    return {"data": {"workflowDefaults": text}}


def strategy(policy):
    return config_map(f"spec: {{templateDefaults: {{retryStrategy: {{retryPolicy: {policy}}}}}}}")


def test_kubeflow_as_it_is_shipped_tries_no_task_again_that_failed():
    found = parse_workflow_defaults(yaml.safe_load(RECORDED.read_text()))
    assert found == WorkflowDefaults("OnError")
    assert not found.retries_failed_tasks


def test_the_command_of_the_guide_makes_it_try_them_again():
    guide = (ROOT / "docs" / "guides" / "kubeflow.md").read_text()
    (program,) = (line.split("sed ")[1].split(" |")[0].strip(" '\\") for line in guide.splitlines() if "sed " in line)
    changed = subprocess.run(["sed", program, RECORDED], capture_output=True, text=True, check=True).stdout
    assert changed != RECORDED.read_text()
    assert parse_workflow_defaults(yaml.safe_load(changed)).retries_failed_tasks


@pytest.mark.parametrize(
    ("policy", "again"), [("Always", True), ("OnFailure", True), ("OnError", False), ("OnTransientError", False)]
)
def test_a_policy_says_whether_failed_tasks_are_tried_again(policy, again):
    assert parse_workflow_defaults(strategy(policy)).retries_failed_tasks is again


def test_the_policy_of_a_pipeline_comes_from_the_defaults_alone():
    compiled = next(yaml.safe_load_all((ROOT / "tests" / "golden" / "kfp" / "train_line.yaml").read_text()))
    dag = compiled["components"]["comp-exit-handler-1"]["dag"]
    keys = {key for task in dag["tasks"].values() for key in task["retryPolicy"]}
    assert keys == {"backoffDuration", "backoffFactor", "backoffMaxDuration", "maxRetryCount"}


@pytest.mark.parametrize("found", [{}, {"data": None}, config_map(""), config_map("spec: {}"), strategy("")])
def test_without_a_policy_argo_tries_failed_tasks_again(found):
    assert parse_workflow_defaults(found) == WorkflowDefaults("OnFailure")


@pytest.mark.parametrize("text", ["spec: [", "[1, 2]", "spec: word", "spec: {templateDefaults: [1]}"])
def test_what_is_no_such_configuration_is_unknown(text):
    assert parse_workflow_defaults(config_map(text)) is None
    assert parse_workflow_defaults({"data": {"config": "workflowDefaults: {}"}}) is None


def test_it_is_read_where_kubeflow_installs_it():
    api = FakeApi()
    assert read_workflow_defaults(api) is None
    api.server.add_namespace(NAMESPACE)
    api.create(PATH.rpartition("/")[0], yaml.safe_load(RECORDED.read_text()))
    assert read_workflow_defaults(api) == WorkflowDefaults("OnError")
    api.server.denied.add(("get", "configmaps"))
    with pytest.raises(ApiForbidden):
        read_workflow_defaults(api)
