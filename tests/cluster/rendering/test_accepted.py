"""A real API server takes every object we render: strictly validated, under PodSecurity `restricted`, as dry runs."""

from contextlib import suppress
from dataclasses import replace

import pytest
from tests.launch.kubernetes.gangs import CPU, cases
from tests.launch.kubernetes.templates import pod_of

from gangline.launch.kubernetes.client.api import ApiRejected
from gangline.launch.kubernetes.cluster.facts import ClusterFacts
from gangline.launch.kubernetes.objects.manifest import merge
from gangline.launch.kubernetes.objects.render import render_as, secret

pytestmark = pytest.mark.cluster
CASES = cases()


def placed_in(setting, namespace):
    """Names of priority classes are left out: a bare cluster has none."""
    facts = setting.facts
    left = ClusterFacts(
        queues=facts.queues, topologies=facts.topologies, levels=facts.levels, volcano=facts.volcano, kai=facts.kai
    )
    return replace(setting, namespace=namespace, facts=left)


@pytest.fixture
def served(api, cluster):
    """Skips where the cluster does not serve a collection."""
    with suppress(pytest.skip.Exception):
        cluster.demand("trainjob")  # JobSet is there before it

    def demand(path):
        group_version, plural = path.removeprefix("/apis/").split("/namespaces/")[0], path.rsplit("/", 1)[1]
        listed = api.get(f"/apis/{group_version}")
        if listed is None or plural not in {each["name"] for each in listed["resources"]}:
            pytest.skip(f"this cluster serves no {plural} of {group_version}")

    return demand


@pytest.mark.parametrize("name", sorted(name for name in CASES if "trainjob" not in name))
def test_root_is_taken_before_and_after_its_last_write(name, api, served):
    kind, setting = CASES[name]
    rendered = render_as(kind, placed_in(setting, api.namespace))
    served(rendered.root_path)
    for body in (rendered.root, merge(rendered.root, rendered.release)):
        made = api.create(rendered.root_path, body, dry_run=True)
        assert made["metadata"]["labels"]["gangline/gang"] == setting.podset.name


@pytest.mark.parametrize("name", sorted(name for name in CASES if "trainjob" in name))
def test_runtime_of_a_trainjob_is_taken(name, api, served):
    """Its TrainJob cannot be tried without it: Trainer's webhook wants the runtime to exist."""
    rendered = render_as("trainjob", placed_in(CASES[name][1], api.namespace))
    ((path, body),) = rendered.before
    served(path)
    assert api.create(path, body, dry_run=True)["spec"]["mlPolicy"] == body["spec"]["mlPolicy"]


@pytest.mark.parametrize("name", sorted(CASES))
def test_objects_around_a_root_are_accepted(name, api, served):
    kind, setting = CASES[name]
    rendered = render_as(kind, placed_in(setting, api.namespace))
    for path, body in rendered.around:
        if path.startswith("/apis/"):
            served(path)
        assert api.create(path, body, dry_run=True)["kind"] == body["kind"]


@pytest.mark.parametrize("name", sorted(CASES))
def test_pod_of_a_gang_is_taken_in_a_restricted_namespace(name, api):
    kind, setting = CASES[name]
    body = pod_of(render_as(kind, placed_in(setting, api.namespace)))
    assert api.create(f"/api/v1/namespaces/{api.namespace}/pods", body, dry_run=True)["spec"]["containers"]


def test_secret_of_a_gang_is_taken(api):
    body = secret(CPU, {"checkpoint-key": b"\x00key", "store-credentials": b"a:b"}, job=CPU.name)
    made = api.create(f"/api/v1/namespaces/{api.namespace}/secrets", body, dry_run=True)
    assert made["type"] == "Opaque"


def test_field_that_no_one_knows_is_refused(api):
    rendered = render_as("job", placed_in(CASES["job-1-cpu"][1], api.namespace))
    body = merge(rendered.root, {"spec": {"backofLimit": 0}})
    with pytest.raises(ApiRejected, match="backofLimit"):
        api.create(rendered.root_path, body, dry_run=True)
