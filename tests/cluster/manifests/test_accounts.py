"""Each account on a real API server: every right it was given works, and nothing else does."""

import pytest

from gangline.errors import GanglineError
from gangline.launch.kubernetes.client.api import ApiForbidden, ApiUnavailable
from gangline.launch.kubernetes.cluster import rights
from gangline.launch.kubernetes.cluster.facts import missing_rights
from gangline.launch.kubernetes.cluster.rights import Right, single

pytestmark = [pytest.mark.cluster, pytest.mark.row("A1")]
ACCOUNTS = {
    "gangline-driver": (rights.DRIVER, rights.READER),
    "gangline-placer": (rights.PLACER, rights.PLACER_CLUSTER),
    "gangline-sweeper": (rights.SWEEPER, ()),
    "gangline-gang": ((), ()),
}
VERSIONS = {
    "": "v1",
    "trainer.kubeflow.org": "v1alpha1",
    "jobset.x-k8s.io": "v1alpha2",
    "kueue.x-k8s.io": "v1beta2",
    "visibility.kueue.x-k8s.io": "v1beta2",
    "scheduling.volcano.sh": "v1beta1",
    "topology.volcano.sh": "v1alpha1",
    "scheduling.run.ai": "v2",
    "kai.scheduler": "v1alpha1",
}
VERBS = ("create", "get", "list", "watch", "patch", "update", "delete")
OTHERS = (
    ("", "pods"), ("", "pods/exec"), ("", "pods/portforward"), ("", "secrets"), ("", "services"), ("", "configmaps"),
    ("", "serviceaccounts"), ("", "serviceaccounts/token"), ("", "events"), ("", "resourcequotas"), ("", "limitranges"),
    ("batch", "jobs"), ("batch", "cronjobs"), ("apps", "deployments"), ("networking.k8s.io", "networkpolicies"),
    ("rbac.authorization.k8s.io", "roles"), ("rbac.authorization.k8s.io", "rolebindings"),
    ("coordination.k8s.io", "leases"), ("trainer.kubeflow.org", "trainjobs"), ("jobset.x-k8s.io", "jobsets"),
)  # fmt: skip
CLUSTER_WIDE = (
    ("", "nodes"),
    ("", "namespaces"),
    ("", "persistentvolumes"),
    ("rbac.authorization.k8s.io", "clusterroles"),
)


def ask(client, verb, group, resource, *, name, namespace):
    """Do it to an object of that name, which is not there: who may is not told `ApiForbidden`."""
    plural, _, below = resource.partition("/")
    root = f"/apis/{group}/{VERSIONS.get(group, 'v1')}" if group else "/api/v1"
    path = f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"
    one = f"{path}/{name}{f'/{below}' if below else ''}"
    match verb:
        case "create":
            client.create(one if below else path, {"metadata": {"name": "NOT A NAME"}})
        case "get":
            client.read(one)
        case "list":
            client.items(path)
        case "watch":
            list(client.watch(path, resource_version="", seconds=1.0))
        case "patch":
            client.patch(one, {})
        case "update":
            client.replace(one, {"metadata": {"name": name}})
        case "delete":
            client.delete(one)


def is_allowed(client, verb, right, name, namespace):
    try:
        ask(client, verb, right.group, right.resource, name=name or "nobody", namespace=namespace)
    except ApiForbidden:
        return False
    except ApiUnavailable:
        raise
    except GanglineError:
        return True  # it was let in, and then did not find, or did not like, what it was told
    return True


@pytest.mark.parametrize("account", ACCOUNTS)
def test_every_right_that_was_given_works(site, account):
    client = site.account(account)
    here, everywhere = ACCOUNTS[account]
    given = [(each, site.gangs) for each in single(here)] + [(each, "") for each in single(everywhere)]
    refused = [
        f"{verb} {right.what} {name}"
        for (right, verb, name), namespace in given
        if not is_allowed(client, verb, right, name, namespace or _home(right))
    ]
    assert refused == []


def _home(right):
    """Objects of a namespace that a right in the whole cluster names."""
    return "default" if right.names else ""


@pytest.mark.parametrize("account", ACCOUNTS)
def test_no_other_verb_on_no_other_resource_is_allowed(site, account):
    client = site.account(account)
    here, everywhere = ACCOUNTS[account]
    allowed, count = [], 0
    for places, namespace, rules in ((OTHERS, site.gangs, (*here, *everywhere)), (CLUSTER_WIDE, "", everywhere)):
        for group, resource in places:
            for verb in VERBS:
                right = Right(group=group, resource=resource, verbs=(verb,))
                if _is_given(right, verb, rules) or ("/" in resource and verb in ("list", "watch")):
                    continue
                count += 1
                if is_allowed(client, verb, right, "", namespace):
                    allowed.append(f"{verb} {right.what}")
    assert allowed == []
    assert count > 100


def _is_given(right, verb, rules):
    return any(
        (each.group, each.resource) == (right.group, right.resource) and verb in each.verbs and not each.names
        for each in rules
    )


@pytest.mark.parametrize("account", ["gangline-driver", "gangline-placer", "gangline-sweeper"])
def test_neighbour_is_closed_to_every_account(site, account):
    client = site.account(account)
    for verb in ("create", "list", "patch", "delete"):
        right = Right(group="batch", resource="jobs", verbs=(verb,))
        assert not is_allowed(client, verb, right, "", "default")


def test_account_sees_its_own_missing_rights(site):
    assert missing_rights(site.account("gangline-driver")) == []
    assert "create jobs.batch" in missing_rights(site.account("gangline-sweeper"))
