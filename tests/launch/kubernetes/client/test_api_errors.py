"""Refusals as Kubernetes 1.34.4 words them, and the class that callers act on."""

import pytest

from gangline.launch.kubernetes.client.api import (
    ApiConflict,
    ApiExpired,
    ApiForbidden,
    ApiQuotaExceeded,
    ApiRejected,
    ApiUnavailable,
    api_error,
    is_retryable,
    may_have_happened,
    parse_path,
)

PODS = parse_path("/api/v1/namespaces/gangs/pods")
NO_RIGHT = (
    'pods is forbidden: User "system:serviceaccount:gangs:x" cannot create resource "pods" in API group "" in the '
    'namespace "gangs"'
)
RESTRICTED = (
    'pods "p" is forbidden: violates PodSecurity "restricted:latest": privileged (container "node" must not set '
    "securityContext.privileged=true)"
)
POLICY = "pods \"p\" is forbidden: ValidatingAdmissionPolicy 'g' with binding 'g' denied request: image by digest"
ENDS = 'pods "p" is forbidden: unable to create new content in namespace gangs because it is being terminated'
QUOTA = 'pods "p" is forbidden: exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0'
NO_LIMIT = 'pods "p" is forbidden: failed quota: q: must specify limits.cpu for: node'
SEEN = {
    "no right": (403, NO_RIGHT, ApiForbidden),
    "no account": (401, "Unauthorized", ApiForbidden),
    "quota": (403, QUOTA, ApiQuotaExceeded),
    "quota wants a limit": (403, NO_LIMIT, ApiRejected),
    "pod security": (403, RESTRICTED, ApiRejected),
    "policy": (422, POLICY, ApiRejected),
    "namespace ends": (403, ENDS, ApiRejected),
    "unknown field": (400, 'strict decoding error: unknown field "spec.foo"', ApiRejected),
    "immutable": (422, 'Job.batch "j" is invalid: spec.template: Invalid value: field is immutable', ApiRejected),
    "taken": (409, 'pods "p" already exists', ApiConflict),
    "old": (410, "too old resource version: 1 (1000)", ApiExpired),
    "tired": (500, "etcdserver: request timed out", ApiUnavailable),
}


@pytest.mark.parametrize(("status", "message", "expected"), SEEN.values(), ids=SEEN.keys())
def test_refusal_has_the_class_that_callers_act_on(status, message, expected):
    error = api_error(status, {"message": message}, verb="create", place=PODS)
    assert type(error) is expected
    assert str(error).startswith("create pods in namespace gangs: ")


def test_missing_right_is_named_by_verb_and_resource():
    error = api_error(403, {"message": NO_RIGHT}, verb="create", place=PODS)
    assert "lacks the right `create` on `pods`" in str(error)


def test_missing_namespace_is_named_with_the_key_that_names_it():
    error = api_error(404, {"message": 'namespaces "gangs" not found'}, verb="create", place=PODS)
    assert "there is no namespace gangs; make it, or name another one in launch.namespace" in str(error)


def test_patch_that_does_not_apply_is_a_conflict():
    message = "the server rejected our request due to an error in our request"
    assert type(api_error(422, {"message": message}, verb="patch", place=PODS)) is ApiConflict


def test_hostile_message_is_one_bounded_line():
    text = str(api_error(400, {"message": "a\nb" * 100_000}, verb="create", place=PODS))
    assert "\n" not in text
    assert len(text) < 3000


def test_write_that_a_webhook_could_not_judge_has_not_happened():
    body = {"message": 'Internal error occurred: failed calling webhook "v": connection refused'}
    assert is_retryable(500, body)
    assert not may_have_happened(500, body)
    assert may_have_happened(500, {"message": "etcdserver: request timed out"})


def test_two_writers_of_one_quota_try_again():
    assert is_retryable(409, {"details": {"kind": "resourcequotas"}})
    assert not is_retryable(409, {"details": {"kind": "pods"}})
    assert not is_retryable(409, {"details": "pods"})
