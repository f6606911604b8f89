"""The Job of a pod that runs model code once: what its two containers get, and what the second one never gets."""

import json
from dataclasses import replace

import kubernetes_validate
import pytest
from tests.cluster.fake.admission import policies
from tests.launch.kubernetes.gangs import CPU, setting
from tests.launch.kubernetes.templates import pod_of
from tests.oracles.admission import Asked, refusals
from tests.oracles.network_policies import Endpoint, allowed

from gangline.launch.kubernetes.module_runner import BUNDLE, COMMAND, render_module_pod
from gangline.spec.gang.podset import Resources

ONCE = replace(
    CPU, name="bytegpt-9f31c2a0-k7q2mx-0a1b2", procs_per_node=1, command=COMMAND, secrets=(BUNDLE,), env={},
    resources=Resources(cpus=1.0, memory_bytes=2**30), deadline_seconds=300.0, metrics_port_base=None,
)  # fmt: skip
RENDERED = render_module_pod(setting(ONCE))
POD = pod_of(RENDERED)
(FETCH,), (RUN,) = POD["spec"]["initContainers"], POD["spec"]["containers"]


@pytest.mark.row("P10")
def test_container_of_model_code_has_no_secret_and_no_way_to_one():
    assert POD["spec"]["automountServiceAccountToken"] is False
    (mounted,) = [each["name"] for each in POD["spec"]["volumes"] if "secret" in each]
    assert mounted in {each["name"] for each in FETCH["volumeMounts"]}
    assert mounted not in {each["name"] for each in RUN["volumeMounts"]}
    assert "envFrom" not in RUN
    assert all(set(each) == {"name", "value"} for each in RUN["env"]), "nothing is filled in by the cluster"
    assert not [each for each in RUN["env"] if "secret" in json.dumps(each).lower()]


@pytest.mark.row("A3")
@pytest.mark.parametrize("container", [FETCH, RUN], ids=["fetch", "run"])
def test_both_containers_are_as_closed_as_those_of_a_gang(container):
    whole, own = POD["spec"]["securityContext"], container["securityContext"]
    assert (whole["runAsNonRoot"], whole["runAsUser"], whole["seccompProfile"]) == (
        True,
        65532,
        {"type": "RuntimeDefault"},
    )
    assert own == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}
    }  # fmt: skip
    assert container["resources"]["limits"] == container["resources"]["requests"]
    assert container["resources"]["limits"]["cpu"] == "1"


@pytest.mark.row("A3")
def test_our_admission_policies_take_it():
    assert refusals(policies(), Asked(resource="jobs", object=RENDERED.root)) == []
    assert refusals(policies(), Asked(resource="pods", object=POD)) == []


@pytest.mark.parametrize("version", ["1.31", "1.34", "1.37"])
def test_objects_hold_no_field_that_kubernetes_does_not_know(version):
    for thing in (RENDERED.root, *(each for _, each in RENDERED.around)):
        assert kubernetes_validate.validate(thing, version, strict=True) == version


def test_job_ends_goes_and_is_found_even_where_its_driver_died():
    spec, metadata = RENDERED.root["spec"], RENDERED.root["metadata"]
    assert 300 < spec["activeDeadlineSeconds"] < 3600
    assert (spec["backoffLimit"], spec["ttlSecondsAfterFinished"]) == (0, 60)
    assert metadata["labels"].items() >= {"gangline/gang": ONCE.name, "gangline/run": ONCE.run}.items()
    assert metadata["annotations"]["gangline/end"] < "2026-03-01T13:00:00Z", "a sweep need not wait for a week"


@pytest.mark.row("A4")
def test_its_pod_reaches_name_servers_and_store_alone():
    deny = {"metadata": {"namespace": "gangs"}, "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}}
    (policy,) = [each for _, each in RENDERED.around]
    me = Endpoint(ip="10.1.0.10", namespace="gangs", labels=POD["metadata"]["labels"])
    store = Endpoint(ip="10.1.0.40", namespace="store", labels={"app": "minio"})
    others = [
        Endpoint(ip="10.200.0.1"), Endpoint(ip="169.254.169.254"), Endpoint(ip="93.184.216.34"),
        Endpoint(ip="10.1.0.20", namespace="gangs", labels={"gangline/gang": "another"}),
    ]  # fmt: skip
    assert allowed(me, store, 9000, (deny, policy))
    assert not [each for each in others for port in (80, 443, 6443, 9000) if allowed(me, each, port, (deny, policy))]
