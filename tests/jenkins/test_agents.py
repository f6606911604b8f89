"""Pods of agents: known to the API to the last field, restricted, and of forks without what a fork must not have."""

import copy
import re
from functools import cache

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cluster.fake.strict import validator
from tests.jenkins.files import AGENTS, PODS
from tests.jenkins.steps import NODE
from tests.oracles.restricted_pods import violations

KUBERNETES = ("1.31", "1.34")
every_agent = pytest.mark.parametrize("name", AGENTS)
ADDED = {
    "hostPath": lambda pod: pod["spec"]["volumes"].append({"name": "x", "hostPath": {"path": "/"}}),
    "hostNetwork": lambda pod: pod["spec"].update(hostNetwork=True),
    "hostPID": lambda pod: pod["spec"].update(hostPID=True),
    "privileged": lambda pod: security(pod).update(privileged=True),
    "escalation": lambda pod: security(pod).pop("allowPrivilegeEscalation"),
    "capabilities": lambda pod: security(pod).update(capabilities={"add": ["SYS_ADMIN"]}),
    "root": lambda pod: security(pod).update(runAsUser=0),
    "perhaps root": lambda pod: pod["spec"]["securityContext"].pop("runAsNonRoot"),
    "no seccomp": lambda pod: pod["spec"]["securityContext"].pop("seccompProfile"),
    "a token": lambda pod: pod["spec"].update(automountServiceAccountToken=True),
    "a foreign account": lambda pod: pod["spec"].update(serviceAccountName="default"),
    "an image by tag": lambda pod: pod["spec"]["containers"][0].update(image="docker.io/x:latest"),
    "a host port": lambda pod: pod["spec"]["containers"][1].update(ports=[{"containerPort": 1, "hostPort": 1}]),
    "a token of the API": lambda pod: pod["spec"]["volumes"].append(
        {"name": "x", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "audience": "api"}}]}}
    ),
}


@cache
def read(name):
    return yaml.safe_load(AGENTS[name].read_text())


def security(pod):
    return pod["spec"]["containers"][1]["securityContext"]


def broken(pod):
    """What the tables of gangs find in it; a run is what agents have none of."""
    return [each for each in violations(pod, account="gangline-agent") if each.control not in ("run", "secret")]


@every_agent
def test_pod_is_known_to_the_api_to_its_last_field(name):
    for version in KUBERNETES:
        assert [error.message for error in validator("v1", "Pod", version).iter_errors(read(name))] == []


@every_agent
def test_pod_keeps_to_what_is_asked_of_gangs(name):
    assert broken(read(name)) == []


@settings(max_examples=50, deadline=None)
@given(name=st.sampled_from(sorted(AGENTS)), added=st.sets(st.sampled_from(sorted(ADDED)), min_size=1, max_size=3))
def test_pod_that_was_loosened_is_refused(name, added):
    pod = copy.deepcopy(read(name))
    for each in added:
        ADDED[each](pod)
    assert broken(pod) != []


@every_agent
def test_pod_ends_by_itself_and_is_bounded(name):
    spec = read(name)["spec"]
    assert spec["activeDeadlineSeconds"] <= 7200
    assert spec["restartPolicy"] == "Never"
    assert spec["securityContext"]["runAsUser"] > 0
    for container in spec["containers"]:
        assert set(container["resources"]) == {"requests", "limits"}
        assert {"cpu", "memory", "ephemeral-storage"} == set(container["resources"]["limits"])
    for volume in spec["volumes"]:
        assert "emptyDir" not in volume or volume["emptyDir"]["sizeLimit"]


@every_agent
def test_secrets_are_files_and_never_in_the_environment(name):
    for container in read(name)["spec"]["containers"]:
        assert "envFrom" not in container
        assert all(set(each) == {"name", "value"} for each in container.get("env", []))
        assert not [each for each in container.get("env", []) if re.search(r"TOKEN|PASSWORD|SECRET|_KEY", each["name"])]


@pytest.mark.row("P5")
def test_pod_for_forks_has_neither_the_sites_secrets_nor_a_way_to_cluster_or_registry():
    spec = read("check")["spec"]
    secrets = {volume["secret"]["secretName"] for volume in spec["volumes"] if "secret" in volume}
    maps = {volume["configMap"]["name"] for volume in spec["volumes"] if "configMap" in volume}
    assert secrets == {"gangline-fork-store", "gangline-fork-signing"}
    assert maps == {"gangline-fork-site", "gangline-keys"}
    names = {each["name"] for container in spec["containers"] for each in container.get("env", [])}
    assert not names & {"KUBECONFIG", "DOCKER_CONFIG", "BUILDKIT_HOST"}


def test_only_the_pod_that_drives_knows_the_cluster():
    knows = [name for name in AGENTS if "gangline-driver" in AGENTS[name].read_text()]
    assert knows == ["line"]


def test_every_agent_is_a_template_of_the_controller_and_the_other_way_round():
    clouds = yaml.safe_load(PODS.read_text())["jenkins"]["clouds"]
    (templates,) = [cloud["kubernetes"]["templates"] for cloud in clouds]
    assert {each["label"] for each in templates} == {f"gangline-{name}" for name in AGENTS}
    for each in templates:
        file = each["name"].removeprefix("gangline-")
        assert each["yaml"] == f"${{readFile:/etc/jenkins/agents/{file}.yaml}}"
        assert each["nodeUsageMode"] == "EXCLUSIVE"
        assert each["podRetention"] == "never"
        assert NODE.fullmatch(each["label"])
