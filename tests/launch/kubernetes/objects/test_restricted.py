"""What the offline check of pods refuses, control by control."""

import pytest
from hypothesis import given
from tests.launch.kubernetes.gangs import cases
from tests.launch.kubernetes.mutations import MUTATIONS, good_pod, mutated
from tests.launch.kubernetes.templates import pod_of
from tests.oracles.restricted_pods import violations

from gangline.launch.kubernetes.objects.render import render_as


@pytest.mark.parametrize("name", sorted(cases()))
def test_pods_of_gangs_are_allowed(name):
    assert violations(pod_of(render_as(*cases()[name]))) == ()


@pytest.mark.row("A3")
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.name)
@pytest.mark.parametrize("where", ["containers", "initContainers"])
def test_change_is_refused_by_the_control_that_is_meant_for_it(mutation, where):
    pod = good_pod()
    pod["spec"]["initContainers"] = [good_pod()["spec"]["containers"][0] | {"name": "init"}]
    mutation.apply(pod, pod["spec"][where][0])
    found = {each.control for each in violations(pod)}
    assert found == ({mutation.control} if mutation.control else set()) | _companions(mutation)


def _companions(mutation):
    return {"privilege escalation"} if mutation.name == "privileged" else set()


@pytest.mark.row("A3")
@given(mutated())
def test_no_change_hides_another(drawn):
    pod, mutations = drawn
    wanted = {each.control for each in mutations if each.control} - {"capabilities", "seccomp", "user", "image"}
    assert wanted <= {each.control for each in violations(pod)}


def test_violation_says_where_what_and_what_would_do():
    pod = good_pod()
    pod["spec"]["containers"][0]["image"] = "bytegpt:latest"
    (found,) = violations(pod)
    assert str(found) == "image: spec.containers[0].image: wanted name@sha256:..., found 'bytegpt:latest'"


def test_container_without_security_context_meets_no_demand():
    pod = good_pod()
    del pod["spec"]["containers"][0]["securityContext"]
    assert {each.control for each in violations(pod)} == {"privilege escalation", "capabilities"}


def test_token_for_the_store_is_allowed():
    pod = good_pod()
    source = {"serviceAccountToken": {"path": "token", "audience": "gangline-store", "expirationSeconds": 3600}}
    pod["spec"]["volumes"].append({"name": "token", "projected": {"sources": [source]}})
    assert violations(pod) == ()


def test_container_next_to_ranks_is_refused_however_harmless():
    pod = good_pod()
    pod["spec"]["ephemeralContainers"] = [good_pod()["spec"]["containers"][0] | {"name": "debug"}]
    assert {each.control for each in violations(pod)} == {"ephemeral containers"}


@pytest.mark.parametrize("image", ["a@b@sha256:" + "0" * 64, "a @sha256:" + "0" * 64, "@sha256:" + "0" * 64])
def test_image_has_one_name_and_one_digest(image):
    pod = good_pod()
    pod["spec"]["containers"][0]["image"] = image
    assert [each.control for each in violations(pod)] == ["image"]


def test_annotation_that_takes_apparmor_away_is_refused():
    pod = good_pod()
    pod["metadata"]["annotations"]["container.apparmor.security.beta.kubernetes.io/node"] = "unconfined"
    assert [each.control for each in violations(pod)] == ["AppArmor"]


@pytest.mark.parametrize("kind", ["Windows", "windows"])
def test_another_operating_system_has_no_relaxation(kind):
    pod = good_pod()
    pod["spec"]["os"] = {"name": kind}
    assert [each.control for each in violations(pod)] == ["operating system"]
