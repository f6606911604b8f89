"""On a real API server: who holds an account that drives gangs tries to get at Secrets, tokens and other pods.

Each attack is a request of that account; what it is answered is searched for what the Secrets hold.
"""

import base64
import json
import time

import pytest
from tests.launch.kubernetes.gangs import CPU
from tests.launch.kubernetes.mutations import MUTATIONS, good_job, good_pod, ways_to

from gangline.launch.kubernetes.client.api import ApiForbidden, ApiRejected
from gangline.launch.kubernetes.client.transport import ApiRequest
from gangline.launch.kubernetes.objects.service_and_secret import secret

pytestmark = [pytest.mark.cluster, pytest.mark.row("A3")]
DRIVERS = ("gangline-driver", "gangline-serve", "pipeline-runner")
SITE, OTHER = "gangline-store", "other.gang"
"""Secrets that stand in the namespace: one of the site, one of another gang."""
CANARY = base64.b64encode(b"CANARY of a Secret").decode()
EVENTS_SECONDS = 60.0
every_driver = pytest.mark.parametrize("driver", DRIVERS)
every_secret = pytest.mark.parametrize("name", [SITE, OTHER])


def secret_of(name, **more):
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": "Opaque"} | more


def patch_of(body, kind, **query):
    return {"method": "PATCH", "body": body, "content_type": f"application/{kind}", "query": query}


def delete_of(policy, **more):
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy}
    return {"method": "DELETE", "body": options | more}


LOOKS = {
    "get": {"method": "GET"},
    "patch that changes nothing": patch_of({}, "merge-patch+json"),
    "patch in a dry run": patch_of({}, "merge-patch+json", dryRun="All"),
    "strategic patch": patch_of({}, "strategic-merge-patch+json"),
    "empty list of changes": patch_of([], "json-patch+json"),
    "copy into a mark": patch_of(
        [{"op": "copy", "from": "/data/key", "path": "/metadata/generateName"}], "json-patch+json"
    ),
    "apply": patch_of(secret_of(SITE), "apply-patch+yaml", fieldManager="thief", force="true"),
    "apply in a dry run": patch_of(secret_of(SITE), "apply-patch+yaml", fieldManager="thief", dryRun="All"),
    "delete": delete_of("Background"),
    "delete that waits": delete_of("Foreground"),
    "delete that leaves orphans": delete_of("Orphan"),
    "delete in a dry run": delete_of("Foreground", dryRun=["All"]),
    "put without data": {"method": "PUT", "query": {"dryRun": "All"}},
    "put of another type": {"method": "PUT", "query": {"dryRun": "All"}, "type": "kubernetes.io/tls"},
    "put of another version": {"method": "PUT", "query": {"dryRun": "All"}, "resourceVersion": "1"},
}


def answer_of(client, path, *, method, body=None, content_type="application/json", query=None):
    request = ApiRequest(verb="try", method=method, path=path, query=query or {}, body=body, content_type=content_type)
    return client._transport.send(request)


@pytest.fixture(scope="module")
def robbed(guarded):
    """The site with the Secrets that are to be had."""
    path = f"/api/v1/namespaces/{guarded.gangs}/secrets"
    for name in (SITE, OTHER):
        guarded.admin.create(path, secret_of(name, data={"key": CANARY}))
    yield guarded
    for name in (SITE, OTHER):
        assert guarded.admin.get(f"{path}/{name}")["data"] == {"key": CANARY}


def path_of(robbed, plural, name=""):
    root = "/apis/batch/v1" if plural == "jobs" else "/api/v1"
    return f"{root}/namespaces/{robbed.gangs}/{plural}" + (f"/{name}" if name else "")


@every_driver
@every_secret
@pytest.mark.parametrize("look", LOOKS)
def test_no_request_is_answered_with_a_secret(robbed, driver, name, look):
    asked = dict(LOOKS[look])
    if asked["method"] == "PUT":
        body = secret_of(name, type=asked.pop("type", "Opaque"))
        if "resourceVersion" in asked:
            body["metadata"]["resourceVersion"] = asked.pop("resourceVersion")
        asked["body"] = body
    elif isinstance(asked.get("body"), dict) and "kind" in asked["body"] and asked["body"]["kind"] == "Secret":
        asked["body"] = secret_of(name)
    answer = answer_of(robbed.account(driver), path_of(robbed, "secrets", name), **asked)
    assert CANARY not in json.dumps(answer.body)
    if asked["method"] != "PUT" or name == SITE:
        assert answer.status >= 400


@every_driver
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_no_list_of_secrets_is_answered(robbed, driver, method):
    answer = answer_of(robbed.account(driver), path_of(robbed, "secrets"), method=method)
    assert answer.status == 403
    assert CANARY not in json.dumps(answer.body)


@every_driver
def test_secret_of_the_site_cannot_be_written_over_or_added_to(robbed, driver):
    client = robbed.account(driver)
    for body in (secret_of(SITE, data={}), secret_of("gangline-pull", data={})):
        with pytest.raises(ApiRejected, match="this account writes no Secret but"):
            client.replace(path_of(robbed, "secrets", SITE), {**body, "metadata": {"name": SITE}})
        with pytest.raises(ApiRejected, match="this account writes no Secret but"):
            client.create(path_of(robbed, "secrets"), body)


@every_driver
def test_no_secret_is_made_that_the_cluster_fills_with_a_token(robbed, driver):
    named = {"name": "token.gang", "annotations": {"kubernetes.io/service-account.name": "default"}}
    body = secret_of("token.gang", metadata=named, type="kubernetes.io/service-account-token")
    with pytest.raises(ApiRejected, match="the Secret of a gang is Opaque"):
        robbed.account(driver).create(path_of(robbed, "secrets"), body)
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}
    for account in ("default", "gangline-gang"):
        with pytest.raises(ApiForbidden):
            robbed.account(driver).create(path_of(robbed, "serviceaccounts", f"{account}/token"), asked)


def hostile_jobs():
    ways = [each for secret in (SITE, OTHER) for each in ways_to(secret)]
    names = ("foreign account", "token", "projected token", "image by tag", "no run")
    return [*ways, *(each for each in MUTATIONS if each.name in names)]


@every_driver
@pytest.mark.parametrize("mutation", hostile_jobs(), ids=lambda each: each.name)
def test_job_that_names_what_is_not_its_own_is_refused(robbed, driver, mutation):
    job = good_job()
    del job["metadata"]["namespace"]
    template = job["spec"]["template"]
    mutation.apply(template, template["spec"]["containers"][0])
    with pytest.raises(ApiRejected, match="denied request: gangline: "):
        robbed.account(driver).create(path_of(robbed, "jobs"), job)


@every_driver
def test_second_job_of_a_gang_does_not_get_its_secret(robbed, driver):
    """Its label says the gang; its name is another, as the gang's own is taken."""
    client, job = robbed.account(driver), good_job()
    del job["metadata"]["namespace"]
    assert client.create(path_of(robbed, "jobs"), job, dry_run=True)["metadata"]["name"] == job["metadata"]["name"]
    job["metadata"]["name"] = "thief"
    with pytest.raises(ApiRejected, match="pods mount no Secret but"):
        client.create(path_of(robbed, "jobs"), job)


@every_driver
def test_nothing_is_started_or_entered_without_a_job(robbed, driver):
    client = robbed.account(driver)
    with pytest.raises(ApiForbidden):
        client.create(path_of(robbed, "pods"), good_pod())
    for below in ("exec", "attach", "portforward"):
        assert answer_of(client, path_of(robbed, "pods", f"gang-0/{below}"), method="POST").status == 403
        assert answer_of(client, path_of(robbed, "pods", f"gang-0/{below}"), method="GET").status == 403
    for below in ("", "/ephemeralcontainers"):
        answer = answer_of(client, path_of(robbed, "pods", f"gang-0{below}"), **patch_of({}, "merge-patch+json"))
        assert answer.status == 403


@every_driver
@pytest.mark.parametrize(
    "spec",
    [{"externalIPs": ["203.0.113.7"]}, {"type": "ExternalName", "externalName": "evil.example.com"}, {}],
    ids=repr,
)
def test_no_service_takes_traffic_of_others(robbed, driver, spec):
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "taker"}}
    with pytest.raises(ApiRejected, match="Services of gangs are headless"):
        robbed.account(driver).create(path_of(robbed, "services"), body | {"spec": {"ports": [{"port": 443}]} | spec})


@every_driver
def test_secret_of_its_own_gang_is_written_and_written_again(robbed, driver):
    client = robbed.account(driver)
    name = f"own-{DRIVERS.index(driver)}"
    path = path_of(robbed, "secrets")
    for value in (b"first", b"second"):
        body = secret(CPU, {"checkpoint-key": value, "store-credentials": b"a:b"}, job=name)
        if client.replace(f"{path}/{name}.gang", body) is None:
            client.create(path, body)
    data = robbed.admin.get(f"{path}/{name}.gang")["data"]
    assert base64.b64decode(data["checkpoint-key"]) == b"second"


HOST = ("privileged", "host network", "host processes", "host ipc", "root", "capability SYS_ADMIN", "raw /proc")


def without_secret(pod):
    """A pod that anybody could make: it has no Secret, so its owner does not matter."""
    pod["spec"]["volumes"] = [each for each in pod["spec"]["volumes"] if "secret" not in each]
    for container in pod["spec"]["containers"]:
        container["volumeMounts"] = [each for each in container["volumeMounts"] if each["name"] != "secrets"]
    pod["metadata"].pop("ownerReferences", None)
    return pod


def test_jobs_that_want_the_host_get_no_pod(robbed):
    """PodSecurity judges pods, so a Job may stand that never gets one."""
    client = robbed.account("gangline-driver")
    wanted = set()
    for number, mutation in enumerate(each for each in MUTATIONS if each.name in HOST):
        job = good_job()
        job["metadata"] = {"name": f"host-{number}"}
        template = without_secret(job["spec"]["template"])
        mutation.apply(template, template["spec"]["containers"][0])
        job["spec"]["suspend"] = False
        client.create(path_of(robbed, "jobs"), job)
        wanted.add(f"host-{number}")
    assert len(wanted) == len(HOST)
    deadline = time.monotonic() + EVENTS_SECONDS
    while (refused := _without_pods(robbed)) < wanted:
        assert time.monotonic() < deadline, wanted - refused
        time.sleep(0.3)
    made, _ = robbed.admin.items(path_of(robbed, "pods"))
    assert [each["metadata"]["name"] for each in made if each["metadata"]["name"].startswith("host-")] == []


def _without_pods(robbed):
    """Jobs of which the server has said that their pods are refused."""
    events, _ = robbed.admin.items(path_of(robbed, "events"))
    reported = [
        each for each in events if each["reason"] == "FailedCreate" and "violates PodSecurity" in each["message"]
    ]
    return {each["involvedObject"]["name"] for each in reported}


def test_placer_does_not_change_what_runs(robbed):
    """It may patch pods, to give them a server."""
    pod = without_secret(good_pod())
    robbed.admin.create(path_of(robbed, "pods"), pod)
    placer, path = robbed.account("gangline-placer"), path_of(robbed, "pods", pod["metadata"]["name"])
    evil = [{"op": "replace", "path": "/spec/containers/0/image", "value": f"evil.example/x@sha256:{'e' * 64}"}]
    with pytest.raises(ApiRejected, match="keeps the image"):
        placer.patch(path, evil, kind="json")
    assert placer.patch(path, {"metadata": {"labels": {"placed": "yes"}}}) is not None
    robbed.admin.delete(path, grace_seconds=0)
