"""Hostile pods in a namespace of gangs, on a real API server: none is admitted."""

import copy

import pytest
from hypothesis import HealthCheck, given, settings
from tests.launch.kubernetes.mutations import good_pod, mutated
from tests.oracles.restricted_pods import violations

from gangline.launch.kubernetes.client.api import ApiRejected

pytestmark = [pytest.mark.cluster, pytest.mark.row("A3", full="1,000 mutated pods before a real API server")]
TOKEN = {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}]}}
OF_POD = {
    "host network": {"hostNetwork": True},
    "host processes": {"hostPID": True},
    "host memory": {"hostIPC": True},
    "path of the host": {"volumes": [{"name": "h", "hostPath": {"path": "/"}}]},
    "foreign account": {"serviceAccountName": "default"},
    "token mounted": {"automountServiceAccountToken": True},
    "token of no audience": {"volumes": [TOKEN]},
    "root": {"securityContext": {"runAsUser": 0, "runAsNonRoot": False, "seccompProfile": {"type": "RuntimeDefault"}}},
    "no seccomp": {"securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "Unconfined"}}},
    "sysctl": {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}},
}
OF_CONTAINER = {
    "privileged": {"securityContext": {"privileged": True}},
    "capabilities": {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}},
    "escalation": {"securityContext": {"allowPrivilegeEscalation": True, "capabilities": {"drop": ["ALL"]}}},
    "tag": {"image": "registry.example.com/gangline:latest"},
    "tag and half a digest": {"image": "registry.example.com/gangline@sha256:abc"},
    "host port": {"ports": [{"containerPort": 29500, "hostPort": 29500}]},
}


def is_admitted(site, pod):
    try:
        site.admin.create(f"/api/v1/namespaces/{site.gangs}/pods", pod, dry_run=True)
    except ApiRejected:
        return False
    return True


def test_pod_as_we_render_it_is_admitted(guarded):
    pod = good_pod()
    site_answer = guarded.admin.create(f"/api/v1/namespaces/{guarded.gangs}/pods", pod, dry_run=True)
    assert site_answer["metadata"]["name"] == pod["metadata"]["name"]


@pytest.mark.parametrize("what", OF_POD)
def test_hostile_pod_is_refused(guarded, what):
    pod = good_pod()
    pod["spec"] |= copy.deepcopy(OF_POD[what])
    for container in pod["spec"]["containers"]:
        if "volumes" in OF_POD[what]:
            container["volumeMounts"] = []
    assert not is_admitted(guarded, pod)
    assert violations(pod)


@pytest.mark.parametrize("what", OF_CONTAINER)
def test_hostile_container_is_refused(guarded, what):
    pod = good_pod()
    pod["spec"]["containers"][0] |= copy.deepcopy(OF_CONTAINER[what])
    assert not is_admitted(guarded, pod)
    assert violations(pod)


def test_pod_of_no_run_is_refused(guarded):
    pod = good_pod()
    del pod["metadata"]["labels"]["gangline/run"]
    assert not is_admitted(guarded, pod)


def admitted(guarded, drawn):
    """Hostile mutations of a pod that the server takes all the same."""
    pod, mutations = drawn
    hostile = [each.name for each in mutations if each.control is not None]
    return hostile if hostile and is_admitted(guarded, pod) else []


given_mutated = given(drawn=mutated())
quiet = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@settings(max_examples=200, suppress_health_check=quiet)
@given_mutated
def test_no_mutated_pod_is_admitted(guarded, drawn):
    assert admitted(guarded, drawn) == []


@pytest.mark.slow
@settings(max_examples=1000, suppress_health_check=quiet)
@given_mutated
def test_no_mutated_pod_of_a_thousand_is_admitted(guarded, drawn):
    assert admitted(guarded, drawn) == []
