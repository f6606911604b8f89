"""Kubeflow Trainer, its own webhooks and controller: what we render for it is admitted, and becomes the JobSet we mean.

What stays suspended here shows what is made of a TrainJob; `test_roots` lets them run."""

import copy
import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from tests.cluster.rig.trouble import Trouble
from tests.launch.kubernetes.gangs import CPU, setting

from gangline.launch.kubernetes.client.client import connect
from gangline.launch.kubernetes.cluster.facts import read_facts
from gangline.launch.kubernetes.launcher import KubernetesLauncher
from gangline.launch.kubernetes.objects.render import owner_patch, render_as
from gangline.spec.config.site import LaunchTable, PodTable

pytestmark = pytest.mark.cluster
GOLDEN = Path(__file__).parents[2] / "golden" / "cluster" / "jobset-of-trainer-2.3.0.yaml"
PAIR = replace(CPU, num_nodes=2)


@pytest.fixture(scope="module")
def place(cluster):
    """A namespace of a cluster that serves TrainJobs."""
    cluster.demand("trainjob")
    made = cluster.namespace("trainer")
    yield made
    cluster.kubectl.run("delete", "trainjobs", "--all", "-n", made)  # before their namespace, or a finalizer holds it
    cluster.delete(made)


def create(cluster, place, thing):
    cluster.kubectl.run("create", "--validate=strict", "-n", place, "-f", "-", feed=json.dumps(thing))


def await_jobset(cluster, place, name):
    deadline = time.monotonic() + 30
    while not cluster.kubectl.run("get", "jobsets", name, "-n", place, "--ignore-not-found", "-o", "name").strip():
        assert time.monotonic() < deadline, cluster.kubectl.run("describe", "trainjob", name, "-n", place)
        time.sleep(0.2)
    return cluster.read("jobset", name, "-n", place)


@pytest.fixture(scope="module")
def gang(cluster, place):
    """A rendered TrainJob of two nodes with its runtime, created as our launcher does."""
    rendered = render_as("trainjob", setting(PAIR, namespace=place))
    for _, thing in rendered.before:
        create(cluster, place, thing)
    create(cluster, place, rendered.root)
    return rendered


def test_jobset_of_a_rendered_trainjob_is_the_one_we_mean(cluster, place, gang):
    jobset = await_jobset(cluster, place, PAIR.name)
    reported = {"labels": jobset["metadata"].get("labels"), "spec": jobset["spec"]}
    text = yaml.safe_dump(json.loads(json.dumps(reported).replace(place, "gangs")), sort_keys=True)
    if os.environ.get("GANGLINE_TEST_WRITE_GOLDEN"):  # then read the difference in review
        GOLDEN.write_text(text, "utf-8")
    assert text == GOLDEN.read_text("utf-8")


def test_template_reaches_the_jobset_unchanged(cluster, place, gang):
    asked = gang.before[0][1]["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    made = await_jobset(cluster, place, PAIR.name)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    container = asked["containers"][0]
    assert made["containers"][0]["command"] == container["command"]
    names = [each["name"] for each in made["containers"][0]["env"]]
    assert names == [each["name"] for each in container["env"]]
    assert made["securityContext"] == asked["securityContext"]


def test_stays_suspended_until_it_is_released(cluster, place, gang):
    assert await_jobset(cluster, place, PAIR.name)["spec"]["suspend"] is True


def test_runtime_belongs_to_its_trainjob(cluster, place, gang):
    root = cluster.read("trainjob", PAIR.name, "-n", place)
    patch = json.dumps(owner_patch(root))
    cluster.kubectl.run("patch", "trainingruntime", PAIR.name, "-n", place, "--type=merge", "-p", patch)
    owners = cluster.read("trainingruntime", PAIR.name, "-n", place)["metadata"]["ownerReferences"]
    assert [each["uid"] for each in owners] == [root["metadata"]["uid"]]


def test_webhook_refuses_a_runtime_that_does_not_exist(cluster, place, gang):
    wrong = copy.deepcopy(gang.root)
    wrong["metadata"]["name"] = "wrong"
    wrong["spec"]["runtimeRef"]["name"] = "no-such-runtime"
    with pytest.raises(Trouble, match=r"denied the request.*must be created before the TrainJob"):
        create(cluster, place, wrong)


def test_field_that_this_trainer_does_not_know_is_refused(cluster, place, gang):
    wrong = copy.deepcopy(gang.root)
    wrong["metadata"]["name"] = "wrong"
    wrong["spec"]["podTemplateOverrides"] = []
    wrong["spec"]["wishes"] = []
    with pytest.raises(Trouble, match="unknown field"):
        create(cluster, place, wrong)


@pytest.fixture(scope="module")
def launcher(cluster, place):
    """As the line opens it."""
    api = connect({**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}, namespace=place)
    return KubernetesLauncher(
        api, facts=read_facts(api), launch=LaunchTable(target="kubernetes", namespace=place), pod=PodTable(),
        secrets=lambda name: f"value of {name}".encode(),
    )  # fmt: skip


def test_cluster_is_known_to_serve_trainjobs_of_this_spelling(cluster, place):
    if not cluster.is_own:
        pytest.skip("a given cluster may serve another version")
    facts = read_facts(connect({**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}, namespace=place))
    assert (facts.trainer, facts.jobset) == ("runtimePatches", True)  # another suite may install Kueue meanwhile


def test_launcher_starts_a_trainjob_and_leaves_nothing_of_it(cluster, place, launcher):
    podset = replace(CPU, name="launched", run="launched")
    launcher.submit(podset)
    deadline = time.monotonic() + 60
    while await_jobset(cluster, place, "launched")["spec"]["suspend"]:
        assert time.monotonic() < deadline, cluster.kubectl.run("describe", "trainjob", "launched", "-n", place)
        time.sleep(0.2)
    owners = cluster.read("trainingruntime", "launched", "-n", place)["metadata"]["ownerReferences"]
    assert [each["kind"] for each in owners] == ["TrainJob"]
    assert cluster.leftovers(place, labels="gangline/gang=launched")
    launcher.submit(podset)  # another driver adopts it
    launcher.cancel("launched", reason="the test is over", save=False)
    kinds = "trainjobs,jobsets,trainingruntimes"
    while left := cluster.kubectl.run("get", kinds, "-n", place, "-l", "gangline/gang=launched", "-o", "name").split():
        assert time.monotonic() < deadline, left
        time.sleep(0.3)
    assert cluster.leftovers(place, labels="gangline/gang=launched") == []


def test_everything_goes_with_the_trainjob(cluster, place):
    name = "shortlived"
    rendered = render_as("trainjob", setting(replace(PAIR, name=name, run=name), namespace=place))
    for _, thing in rendered.before:
        create(cluster, place, thing)
    create(cluster, place, rendered.root)
    await_jobset(cluster, place, name)
    patch = json.dumps(owner_patch(cluster.read("trainjob", name, "-n", place)))
    cluster.kubectl.run("patch", "trainingruntime", name, "-n", place, "--type=merge", "-p", patch)
    cluster.kubectl.run("delete", "trainjob", name, "-n", place)
    kinds = "trainjobs,jobsets,trainingruntimes"
    deadline = time.monotonic() + 60
    while left := cluster.kubectl.run("get", kinds, "-n", place, "-l", f"gangline/gang={name}", "-o", "name").split():
        assert time.monotonic() < deadline, left
        time.sleep(0.3)
