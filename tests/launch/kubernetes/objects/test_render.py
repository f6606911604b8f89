"""Roots and what belongs to them: which, in which order, runnable by one last write."""

import base64
from dataclasses import replace

import pytest
from tests.launch.kubernetes.gangs import CPU, GPU, GPU_SITE, NOW, SITE, cases, kueue_setting, setting
from tests.launch.kubernetes.templates import template_of

from gangline.errors import ConfigError
from gangline.launch.kubernetes.cluster.facts import ClusterFacts
from gangline.launch.kubernetes.objects.manifest import in_order, merge
from gangline.launch.kubernetes.objects.render import owned, owner_patch, render, render_as, secret
from gangline.launch.kubernetes.objects.render_context import RenderContext
from gangline.spec.config.site import LaunchTable

KINDS = ("job", "jobset", "trainjob")
ROOT = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "g", "uid": "u-1", "labels": {"x": "y"}}}


def rendered(*, launcher="trainjob", facts=None, **more):
    context = RenderContext(
        podset=CPU, namespace="gangs", pod=SITE, launch=LaunchTable(launcher=launcher), facts=facts or ClusterFacts(),
        route="none", now=NOW, **more,
    )  # fmt: skip
    return render(context)


def test_plain_job_where_no_trainjob_is_served():
    assert rendered().root["kind"] == "Job"


def test_trainjob_where_it_is_served():
    found = rendered(facts=ClusterFacts(trainer="podSpecOverrides"))
    assert found.root["kind"] == "TrainJob"
    assert [thing["kind"] for _, thing in found.before] == ["TrainingRuntime"]


@pytest.mark.parametrize(("launcher", "kind"), [("job", "Job"), ("jobset", "JobSet")])
def test_root_that_the_site_asks_for_is_taken(launcher, kind):
    served = ("batch/v1/jobs", "jobset.x-k8s.io/v1alpha2/jobsets")
    found = rendered(launcher=launcher, facts=ClusterFacts(trainer="runtimePatches", served=served))
    assert found.root["kind"] == kind


def test_jobset_that_no_one_serves_is_refused():
    with pytest.raises(ConfigError, match='wanted "jobset", found a cluster that serves no JobSet'):
        rendered(launcher="jobset")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("route", ["none", "gates"])
def test_root_is_born_suspended_and_in_no_queue(kind, route):
    found = render_as(kind, setting(GPU, pod=GPU_SITE, route=route))
    assert found.root["spec"]["suspend"] is True
    assert "gangline/queued" not in found.root["metadata"]["annotations"]


def test_last_write_unsuspends_marks_or_queues():
    assert render_as("job", setting()).release == {"spec": {"suspend": False}}
    marked = render_as("job", setting(route="gates")).release
    assert marked == {"metadata": {"annotations": {"gangline/queued": "2026-03-01T12:00:00Z"}}}
    queued = render_as("job", kueue_setting())
    assert queued.release["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "shared"
    assert "kueue.x-k8s.io/queue-name" not in queued.root["metadata"]["labels"]


def test_topology_is_asked_for_in_the_template_under_every_root():
    for kind in KINDS:
        template = template_of(render_as(kind, kueue_setting()))
        assert template["metadata"]["annotations"]["kueue.x-k8s.io/podset-slice-size"]


def test_kueue_without_a_queue_is_refused():
    with pytest.raises(ConfigError, match="wanted the name of a queue, found none"):
        render_as("job", setting(route="kueue"))


def test_only_queue_of_a_namespace_is_taken():
    facts = ClusterFacts(queues={"shared": "cluster"}, topologies=("default",))
    found = render_as("job", setting(route="kueue", facts=facts))
    assert found.release == {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "shared"}}}
    assert not [key for key in template_of(found)["metadata"]["annotations"] if "topology" in key]


@pytest.mark.parametrize("kind", KINDS)
def test_pods_find_node_zero_by_the_name_their_root_gives_it(kind):
    entries = template_of(render_as(kind, setting(GPU, pod=GPU_SITE)))["spec"]["containers"][0]["env"]
    found = {each["name"]: each.get("value") for each in entries}
    child = "" if kind == "job" else "-node-0"
    assert found["MASTER_ADDR"] == f"{GPU.name}{child}-0.{GPU.name}"


@pytest.mark.parametrize("kind", KINDS)
def test_pods_differ_by_master_subdomain_and_secret_alone(kind):
    def plain(template):
        spec = dict(template["spec"])
        spec.pop("subdomain", None)
        spec["volumes"] = [each for each in spec["volumes"] if each["name"] != "secrets"]
        (container,) = spec.pop("containers")
        env = [each for each in container["env"] if "MASTER_ADDR" not in each["name"]]
        return template["metadata"], spec, container | {"env": env}

    given = setting(GPU, pod=GPU_SITE, route="gates")
    assert plain(template_of(render_as(kind, given))) == plain(template_of(render_as("job", given)))


def test_only_roots_have_a_time_to_live():
    found = {kind: render_as(kind, setting()) for kind in KINDS}
    assert found["job"].root["spec"]["ttlSecondsAfterFinished"] == 3600
    assert found["jobset"].root["spec"]["ttlSecondsAfterFinished"] == 3600
    assert "ttlSecondsAfterFinished" not in str(found["trainjob"].before)


def test_jobset_brings_its_own_service():
    kinds = {kind: [thing["kind"] for _, thing in render_as(kind, setting()).around] for kind in KINDS}
    assert kinds == {
        "job": ["Service", "NetworkPolicy"],
        "jobset": ["NetworkPolicy"],
        "trainjob": ["NetworkPolicy"],
    }


@pytest.mark.row("K4")
@pytest.mark.parametrize("kind", KINDS)
def test_pods_that_were_asked_to_leave_are_replaced_and_failed_ones_are_not(kind):
    found = render_as(kind, setting())
    spec = found.before[0][1]["spec"]["template"]["spec"] if found.before else found.root["spec"]
    job = spec["replicatedJobs"][0]["template"]["spec"] if "replicatedJobs" in spec else spec
    disrupted, asked, failed = job["podFailurePolicy"]["rules"]
    assert disrupted == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    container = job["template"]["spec"]["containers"][0]["name"]
    codes = {"containerName": container, "operator": "In", "values": [143]}
    assert asked == {"action": "Ignore", "onExitCodes": codes}
    assert failed == {"action": "FailJob", "onExitCodes": codes | {"operator": "NotIn", "values": [0]}}
    assert (job["backoffLimit"], job["podReplacementPolicy"]) == (0, "Failed")


@pytest.mark.parametrize("name", sorted(cases()))
def test_every_object_can_be_found_by_gang_and_run(name):
    kind, given = cases()[name]
    rendered = render_as(kind, given)
    shared = [thing for _, thing in rendered.shared]
    for thing in in_order(rendered):
        assert thing["metadata"]["name"] == given.podset.name or thing in shared
        assert thing["metadata"]["namespace"] == "gangs"
        assert thing["metadata"]["labels"]["gangline/gang"] == given.podset.name
        assert thing["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "gangline"


def test_what_belongs_to_a_root_goes_with_it():
    (path, service), _ = render_as("job", setting()).around
    (owner,) = owned(service, ROOT)["metadata"]["ownerReferences"]
    assert path == "/api/v1/namespaces/gangs/services"
    assert (owner["kind"], owner["uid"], owner["blockOwnerDeletion"]) == ("Job", "u-1", False)
    assert "ownerReferences" not in service["metadata"]
    assert owner_patch(ROOT) == {"metadata": {"ownerReferences": [owner]}}


def test_root_goes_with_the_workflow_that_drives():
    workflow = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": "w", "uid": "u-9"}}
    (owner,) = rendered(owner=workflow).root["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["blockOwnerDeletion"]) == ("Workflow", "u-9", False)


def test_secret_holds_the_values_that_the_gang_names_and_no_other():
    values = {"checkpoint-key": b"\x00\xff", "store-credentials": b"a:b", "other": b"no"}
    found = secret(CPU, values, job="gang-node-0")
    assert found["metadata"]["name"] == "gang-node-0.gang"
    assert {name: base64.b64decode(value) for name, value in found["data"].items()} == {
        "checkpoint-key": b"\x00\xff",
        "store-credentials": b"a:b",
    }


def test_secret_without_a_value_is_refused():
    with pytest.raises(ConfigError, match="found none of store-credentials"):
        secret(CPU, {"checkpoint-key": b"k"}, job="gang")


def test_rendering_does_not_change_what_it_was_given():
    given = kueue_setting()
    before = replace(given)
    render_as("trainjob", given)
    assert given == before


def test_patch_lays_one_object_over_another():
    assert merge({"a": {"b": 1, "c": 2}, "d": [1]}, {"a": {"b": None, "e": 3}, "d": [2]}) == {
        "a": {"c": 2, "e": 3},
        "d": [2],
    }
