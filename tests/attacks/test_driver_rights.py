"""Who holds a driver's account gets at no Secret, no token and no pod of another kind: the manifests as rendered.

Rights are those of the Roles that are bound; what may be written is judged by the admission policies, evaluated as an
API server evaluates them. On a real one: `tests/cluster/manifests/test_hostile_driver.py`.
"""

import copy

import pytest
from hypothesis import given
from tests.launch.kubernetes.gangs import cases
from tests.launch.kubernetes.mutations import MUTATIONS, good_job, good_pod, mutated
from tests.launch.kubernetes.templates import pod_of
from tests.manifests.rendered import named, objects
from tests.oracles.admission import Asked, refusals
from tests.oracles.restricted_pods import violations

from gangline.launch.kubernetes.cluster.rights import Right, is_granted
from gangline.launch.kubernetes.objects.render import render_as
from gangline.launch.kubernetes.objects.service_and_secret import secret

pytestmark = pytest.mark.row("A3")
BASE = objects("base")
ROLES = objects("test")
"""Those of the base and the reader's, which is applied where it is wanted."""
POLICIES = [each for each in BASE if each["kind"] == "ValidatingAdmissionPolicy"]
ACCOUNTS = {"gangline-driver": "base", "gangline-serve": "serve", "pipeline-runner": "kfp"}
"""To the rendered file that binds it."""
CLOSED = {
    "secrets": ("get", "list", "watch", "patch", "delete", "deletecollection"),  # their answers hold the Secret
    "serviceaccounts/token": ("create",),
    "serviceaccounts": ("create", "patch", "update", "impersonate"),
    "pods": ("create", "patch", "update"),
    "pods/exec": ("create", "get"),
    "pods/attach": ("create", "get"),
    "pods/portforward": ("create", "get"),
    "pods/proxy": ("create", "get"),
    "pods/ephemeralcontainers": ("patch", "update"),
    "namespaces": ("patch", "update"),
}
OURS = ("image", "run", "account", "token", "secret", "volumes", "ephemeral containers")
"""Controls of the policies; PodSecurity has the others."""
HOSTILE = [each for each in MUTATIONS if each.control in OURS]
HARMLESS = [each for each in MUTATIONS if each.control is None]
OF_PODS_ALONE = [each for each in HOSTILE if "metadata.ownerReferences" in each.changes]


def named_by(mutations):
    return pytest.mark.parametrize("mutation", mutations, ids=lambda each: each.name)


def rules_of(account):
    """Of all Roles that are bound to it."""
    bound = [each for each in objects(ACCOUNTS[account]) if each["kind"].endswith("Binding")]
    mine = [each for each in bound if account in [subject["name"] for subject in each.get("subjects", ())]]
    assert mine
    return [rule for each in mine for rule in named(ROLES, each["roleRef"]["kind"], each["roleRef"]["name"])["rules"]]


def job_with(mutation):
    job = good_job()
    template = job["spec"]["template"]
    mutation.apply(template, template["spec"]["containers"][0])
    return job


def pod_with(mutation):
    pod = good_pod()
    mutation.apply(pod, pod["spec"]["containers"][0])
    return pod


def refused(resource, body, *, old=None, policies=None, may=()):
    return refusals(policies or POLICIES, Asked(resource=resource, object=body, old=old, may=may))


@pytest.mark.parametrize("account", ACCOUNTS)
def test_account_has_no_verb_that_shows_a_secret_or_runs_something_else(account):
    rules = rules_of(account)
    asked = [(resource, verb) for resource, verbs in CLOSED.items() for verb in verbs]
    given = [each for each in asked if is_granted(Right(resource=each[0], verbs=(each[1],)), each[1], "", rules)]
    assert given == []


@named_by([each for each in HOSTILE if each not in OF_PODS_ALONE])
def test_job_that_asks_for_more_is_refused(mutation):
    assert refused("jobs", job_with(mutation)) != []


@named_by(HOSTILE)
def test_pod_that_asks_for_more_is_refused_no_matter_who_makes_it(mutation):
    assert refused("pods", pod_with(mutation)) != []


@named_by(HARMLESS)
def test_what_harms_no_one_is_admitted(mutation):
    assert refused("jobs", job_with(mutation)) == []
    assert refused("pods", pod_with(mutation)) == []


@pytest.mark.parametrize("name", sorted(cases()))
def test_gang_as_we_render_it_is_admitted(name):
    rendered = render_as(*cases()[name])
    assert refused("pods", pod_of(rendered)) == []
    if rendered.root["kind"] == "Job":
        assert refused("jobs", rendered.root) == []
        released = {**rendered.root, "spec": {**rendered.root["spec"], "suspend": False}}
        assert refused("jobs", released, old=rendered.root) == []


@given(mutated(num=4))
def test_policies_and_tables_of_controls_agree_on_any_pod(drawn):
    pod, _ = drawn
    wanted = {each.control for each in violations(pod)} & set(OURS)
    assert bool(refused("pods", pod)) == bool(wanted)


def test_secret_of_a_second_job_of_the_gang_is_refused():
    """The label says that it belongs to the other gang; the name of its Job cannot."""
    job = good_job()
    job["metadata"]["name"] = "thief"
    assert refused("jobs", job) == ["gangline: pods mount no Secret but JOB.gang, which has the name of their own Job"]


def test_image_of_a_pod_is_not_changed_afterwards():
    """Who places pods may patch them, and a container whose image changes is started again."""
    old, new = good_pod(), good_pod()
    new["spec"]["containers"][0]["image"] = f"registry.example.com/evil@sha256:{'e' * 64}"
    assert refused("pods", new, old=old) == ["gangline: a pod keeps the image that it was created with"]
    new = copy.deepcopy(old)
    del new["spec"]["schedulingGates"]
    new["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "a"}
    assert refused("pods", new, old=old) == []


def test_pod_of_before_the_policy_can_still_be_marked_and_go():
    old = pod_with(HOSTILE[0])
    new = copy.deepcopy(old)
    new["metadata"]["finalizers"] = []
    assert refused("pods", new, old=old) == []


def written(name, *, kind="Opaque"):
    return {"metadata": {"name": name}, "type": kind, "data": {}}


@pytest.mark.parametrize(
    "body",
    [
        written("gangline-store"),
        written("gangline-pull"),
        written("gang"),
        written("a.gangs"),
        written("a.gang", kind="kubernetes.io/service-account-token"),
        written("a.gang", kind="kubernetes.io/dockerconfigjson"),
        {"metadata": {"name": "a.gang"}},
    ],
)
def test_account_that_reads_no_secret_writes_none_but_those_of_gangs(body):
    assert refused("secrets", body) != []
    assert refused("secrets", body, old=body) != []
    assert refused("secrets", body, may=("get secrets",)) == []


@pytest.mark.parametrize("name", sorted(cases()))
def test_secret_as_we_write_it_is_admitted_and_is_the_one_that_is_mounted(name):
    rendered = render_as(*cases()[name])
    pod = pod_of(rendered)
    podset = cases()[name][1].podset
    job = pod["metadata"]["ownerReferences"][0]["name"]
    body = secret(podset, dict.fromkeys(podset.secrets, b"x"), job=job)
    assert refused("secrets", body) == []
    mounted = {each["secret"]["secretName"] for each in pod["spec"]["volumes"] if "secret" in each}
    assert mounted == {body["metadata"]["name"]}


@pytest.mark.parametrize("name", [each["metadata"]["name"] for each in POLICIES])
def test_policy_fails_closed_and_is_bound_to_the_namespace_of_gangs(name):
    spec = named(BASE, "ValidatingAdmissionPolicy", name)["spec"]
    binding = named(BASE, "ValidatingAdmissionPolicyBinding", name)["spec"]
    assert spec["failurePolicy"] == "Fail"
    assert binding["validationActions"] == ["Deny"]
    assert binding["policyName"] == name
    wanted = binding["matchResources"]["namespaceSelector"]["matchLabels"]
    assert wanted.items() <= named(BASE, "Namespace", "gangline")["metadata"]["labels"].items()


def service(**spec):
    return {"metadata": {"name": "s"}, "spec": spec}


ADDRESSES = [
    service(ports=[{"port": 443}], externalIPs=["203.0.113.7"]),
    service(clusterIP="None", externalIPs=["203.0.113.7"]),
    service(clusterIP="10.96.0.7"),
    service(type="ExternalName", externalName="evil.example.com"),
]


@pytest.mark.parametrize("body", ADDRESSES)
def test_service_that_takes_traffic_of_others_is_refused(body):
    assert refused("services", body) != []
    assert refused("services", body, old=service(clusterIP="None")) != []


def test_service_of_a_gang_is_admitted():
    around = [body for _, body in render_as(*cases()["job-1-cpu"]).around if body["kind"] == "Service"]
    assert [refused("services", body) for body in around] == [[]]


SECRET_ATTACKS = [("secrets", written("gangline-store"), None), ("secrets", written("a.gang", kind="x/y"), None)]
POD_ATTACKS = [("pods", pod_with(each), None) for each in HOSTILE]
OTHER_IMAGE = good_pod()
OTHER_IMAGE["spec"]["containers"][0]["image"] = f"registry.example.com/evil@sha256:{'e' * 64}"
BESIDE_RANKS = good_pod()
BESIDE_RANKS["spec"]["ephemeralContainers"] = [good_pod()["spec"]["containers"][0] | {"name": "debug"}]
KITS_OF_RANKS = copy.deepcopy(pod_of(render_as(*cases()["job-1-coordinator"])))
KITS_OF_RANKS["spec"]["containers"][0]["volumeMounts"].append({"name": "kits", "mountPath": "/kits"})
ATTACKS = [
    *SECRET_ATTACKS,
    *(("services", body, None) for body in ADDRESSES),
    *POD_ATTACKS,
    ("pods", OTHER_IMAGE, good_pod()),
    ("pods", BESIDE_RANKS, good_pod()),
    ("pods", KITS_OF_RANKS, None),
]
RULES = [
    (policy["metadata"]["name"], number) for policy in POLICIES for number in range(len(policy["spec"]["validations"]))
]


@pytest.mark.parametrize(("policy", "number"), RULES)
def test_each_rule_of_a_policy_refuses_what_no_other_does(policy, number):
    weakened = copy.deepcopy(POLICIES)
    del named(weakened, "ValidatingAdmissionPolicy", policy)["spec"]["validations"][number]
    let_in = [body for resource, body, old in ATTACKS if not refused(resource, body, old=old, policies=weakened)]
    assert let_in != []
