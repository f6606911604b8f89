"""Coordinator of a federation in the pod of its gang: the kits are its own, and its port is all that is opened."""

import copy

import pytest
from tests.launch.kubernetes.gangs import CPU, FEDERATED, NOW, setting
from tests.launch.kubernetes.objects.test_network_policy import DENY, PLACES, gang_pod
from tests.launch.kubernetes.templates import pod_of
from tests.manifests.rendered import objects
from tests.oracles.admission import Asked, refusals
from tests.oracles.network_policies import Endpoint, allowed

from gangline.launch.kubernetes.cluster.facts import ClusterFacts
from gangline.launch.kubernetes.objects.network_policy import network_policy
from gangline.launch.kubernetes.objects.render import render, render_as
from gangline.launch.kubernetes.objects.render_context import RenderContext
from gangline.spec.config.site import LaunchTable, PodTable

POLICIES = [each for each in objects("base") if each["kind"] == "ValidatingAdmissionPolicy"]
RENDERED = render_as("job", setting(FEDERATED))
MEMBER = Endpoint(ip="198.51.100.7")


def mounts_of(container):
    return {each["name"] for each in container["volumeMounts"]}


def federated_pod():
    return copy.deepcopy(pod_of(RENDERED))


def refused(pod):
    return refusals(POLICIES, Asked(resource="pods", object=pod))


def test_the_rank_has_no_kit_and_the_coordinator_no_key_of_checkpoints():
    pod = federated_pod()
    [rank], [coordinator] = pod["spec"]["containers"], pod["spec"]["initContainers"]
    assert mounts_of(rank) & mounts_of(coordinator) == {"federation"}
    assert "kits" in mounts_of(coordinator)
    [store] = [each["secret"] for each in pod["spec"]["volumes"] if each["name"] == "coordinator-store"]
    assert [each["key"] for each in store["items"]] == ["store-credentials"]
    assert coordinator["restartPolicy"] == "Always"
    assert pod["spec"].get("shareProcessNamespace") is None


def test_a_gang_without_members_has_neither_sidecar_nor_service_for_them():
    rendered = render_as("job", setting(CPU))
    assert rendered.shared == ()
    assert "initContainers" not in pod_of(rendered)["spec"]


@pytest.mark.row("A3")
@pytest.mark.parametrize("mount", ["rank", "another"])
def test_admission_gives_kits_to_the_coordinator_alone(mount):
    pod = federated_pod()
    assert refused(pod) == []
    [rank] = pod["spec"]["containers"]
    other = copy.deepcopy(rank) | {"name": "helper"}
    (rank if mount == "rank" else other)["volumeMounts"].append({"name": "kits", "mountPath": "/kits"})
    pod["spec"]["containers"] = [rank, other]
    assert refused(pod) == ["gangline: kits of a federation are mounted by the container coordinator alone"]


@pytest.mark.row("A3")
@pytest.mark.parametrize("name", ["gangline-kits", "gangline-store", "x-gangline-kit"])
def test_admission_gives_a_coordinator_no_other_secret(name):
    pod = federated_pod()
    [kits] = [each["projected"] for each in pod["spec"]["volumes"] if each["name"] == "kits"]
    kits["sources"][0]["secret"]["name"] = name
    [message] = refused(pod)
    assert message.startswith("gangline: pods project no Secret but JOB.gang")


@pytest.mark.row("A4")
def test_members_anywhere_reach_the_port_of_the_kit_and_no_other():
    coordinator, policies = gang_pod(FEDERATED, "10.1.0.60"), (DENY, network_policy(setting(FEDERATED)))
    for who in (MEMBER, PLACES["stranger"]):
        opened = [port for port in (22, 443, 8002, 8003, 29500, 29501) if allowed(who, coordinator, port, policies)]
        assert opened == ([8002] if who is MEMBER else [])
    assert not allowed(MEMBER, coordinator, 8002, policies, protocol="UDP")
    assert not allowed(MEMBER, coordinator, 8002, (DENY, network_policy(setting(CPU))))


@pytest.mark.parametrize("launch", [LaunchTable(launcher="jobset"), LaunchTable(runtime="gangline")])
def test_its_gang_is_a_plain_job_whatever_the_site_launches(launch):
    facts = ClusterFacts(served=("jobset.x-k8s.io/v1alpha2/jobsets",), trainer="runtimePatches")
    context = RenderContext(
        podset=FEDERATED, namespace="gangs", pod=PodTable(), launch=launch, facts=facts, route="none", now=NOW
    )
    rendered = render(context)
    assert rendered.root["kind"] == "Job"
    [(path, service)] = rendered.shared
    assert (path, service["metadata"]["name"]) == ("/api/v1/namespaces/gangs/services", "federation")
