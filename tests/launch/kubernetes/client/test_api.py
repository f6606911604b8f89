"""Paths of API servers taken apart."""

import pytest

from gangline.launch.kubernetes.client.api import parse_path


@pytest.mark.parametrize(
    ("path", "resource", "namespace", "name", "served"),
    [
        ("/api/v1/namespaces/gangs/pods", "pods", "gangs", "", "v1/pods"),
        ("/api/v1/namespaces/gangs/pods/p/log", "pods/log", "gangs", "p", "v1/pods"),
        ("/apis/batch/v1/namespaces/gangs/jobs/j/status", "jobs.batch/status", "gangs", "j", "batch/v1/jobs"),
        ("/api/v1/namespaces", "namespaces", "", "", "v1/namespaces"),
        ("/api/v1/namespaces/gangs", "namespaces", "", "gangs", "v1/namespaces"),
        ("/api/v1/namespaces/gangs/finalize", "namespaces/finalize", "", "gangs", "v1/namespaces"),
        ("/api/v1/nodes/a", "nodes", "", "a", "v1/nodes"),
        ("/version", "/version", "", "", ""),
        ("/openapi/v3/apis/batch/v1", "/openapi/v3/apis/batch/v1", "", "", ""),
        ("/apis/batch/v1", "/apis/batch/v1", "", "", ""),
        ("/api/v1", "/api/v1", "", "", ""),
    ],
)
def test_path_says_what_it_points_at(path, resource, namespace, name, served):
    place = parse_path(path)
    assert (place.resource, place.namespace, place.name, place.served) == (resource, namespace, name, served)
