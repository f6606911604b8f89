"""What KAI reads from the root of a gang, and what it is refused for by name."""

from dataclasses import replace

import pytest
from tests.launch.kubernetes.gangs import CLASSES, GPU, KAI, kai_setting, setting
from tests.launch.kubernetes.templates import template_of

from gangline.errors import ConfigError
from gangline.launch.kubernetes.cluster.facts import KaiFacts
from gangline.launch.kubernetes.objects.kai import kai_metadata
from gangline.launch.kubernetes.objects.render import render_as
from gangline.spec.gang.podset import Placement

GROUP, HOST = "gangline/fabric-group", "kubernetes.io/hostname"
REQUIRED, PREFERRED = (f"kai.scheduler/topology-{each}-placement" for each in ("required", "preferred"))


def found(*, queue=None, tile=1, podset=GPU, **facts):
    return kai_metadata(replace(podset, placement=Placement(tile=tile)), queue, replace(KAI, **facts))


@pytest.mark.parametrize("kind", ["jobset", "trainjob"])
def test_root_is_in_its_queue_and_pods_name_their_scheduler(kind):
    rendered = render_as(kind, kai_setting(tile=4))
    root, template = rendered.root["metadata"], template_of(rendered)
    assert root["labels"]["kai.scheduler/queue"] == "gpus"
    assert root["annotations"].items() >= {"kai.scheduler/topology": "racks", REQUIRED: GROUP}.items()
    assert template["spec"]["schedulerName"] == "kai-scheduler"
    assert "schedulingGates" not in template["spec"]
    assert (rendered.root["spec"]["suspend"], rendered.release) == (True, {"spec": {"suspend": False}})


@pytest.mark.parametrize("kind", ["jobset", "trainjob"])
def test_kai_counts_the_pods_of_a_gang_from_the_jobset(kind):
    """KAI 0.13 asks for `replicas * min(parallelism, completions)` pods of each replicated Job, without an order."""
    root = {
        "jobset": lambda all_: all_.root["spec"],
        "trainjob": lambda all_: all_.before[0][1]["spec"]["template"]["spec"],
    }
    spec = root[kind](render_as(kind, kai_setting(tile=1)))
    (child,) = spec["replicatedJobs"]
    job = child["template"]["spec"]
    assert child["replicas"] * min(job["parallelism"], job["completions"]) == GPU.num_nodes
    assert "startupPolicy" not in spec


@pytest.mark.parametrize("kind", ["jobset", "trainjob"])
@pytest.mark.parametrize("priority", ["low", "normal", "high"])
def test_gang_has_its_priority_by_a_label_and_its_pods_no_class_of_a_negative_value(kind, priority):
    """JobSet 0.8 to 0.12 makes a label of the value of a pod's class; no label begins with a minus."""
    context = kai_setting(tile=4)
    rendered = render_as(kind, replace(context, podset=replace(context.podset, priority=priority)))
    assert rendered.root["metadata"]["labels"]["priorityClassName"] == f"gangline-{priority}"
    has = template_of(rendered)["spec"].get("priorityClassName")
    assert has == (None if priority == "low" else f"gangline-{priority}")


def test_gang_without_a_class_has_no_label_of_it():
    context = kai_setting(tile=4)
    rendered = render_as("jobset", replace(context, facts=replace(context.facts, priority_classes=())))
    assert "priorityClassName" not in rendered.root["metadata"]["labels"]


def test_gang_without_gpus_is_not_bound_to_the_servers_of_a_topology():
    """KAI starts nothing on a server that lacks a label of the Topology, even one that is only preferred."""
    no_gpus = replace(GPU, resources=replace(GPU.resources, gpus=0))
    assert found(podset=no_gpus).annotations == {}
    assert found(podset=no_gpus, tile=4).annotations.keys() == {"kai.scheduler/topology", REQUIRED}


def test_plain_job_of_several_pods_is_refused_as_kai_starts_them_one_by_one():
    with pytest.raises(ConfigError, match=r'whose pods KAI starts one by one; set launch\.launcher = "jobset"'):
        render_as("job", kai_setting(tile=1))
    one = replace(GPU, num_nodes=1)
    assert render_as("job", setting(one, pod=kai_setting(tile=1).pod, route="kai", facts=replace(CLASSES, kai=KAI)))


@pytest.mark.parametrize(("tile", "key"), [(1, PREFERRED), (4, REQUIRED)])
def test_group_is_preferred_and_required_for_a_gang_that_is_one_tile(tile, key):
    assert found(tile=tile).annotations == {"kai.scheduler/topology": "racks", key: GROUP}


def test_tiles_inside_a_gang_are_refused_with_the_routes_that_keep_them():
    with pytest.raises(ConfigError, match=r'wanted tiles of 2 pods .* use launch\.route "gates" or "kueue"'):
        found(tile=2)


def test_one_pod_wants_no_group():
    assert found(podset=replace(GPU, num_nodes=1)).annotations == {}


@pytest.mark.parametrize(
    ("topologies", "chosen"),
    [
        ({"racks": ("rack", HOST)}, ("racks", "rack")),
        ({"hosts": (HOST,), "racks": ("row", "rack", HOST)}, ("racks", "rack")),
        ({"clouds": ("zone",), "ours": ("block", GROUP, "chassis", HOST)}, ("ours", GROUP)),
        ({"a": ("rack",), "b": ("row",)}, None),
        ({"a": (GROUP,), "b": (GROUP,)}, None),
        ({"hosts": (HOST,)}, None),
        ({}, None),
        (None, None),
    ],
)
def test_level_of_groups_is_the_narrowest_above_servers_or_the_one_that_has_our_label(topologies, chosen):
    annotations = found(topologies=topologies).annotations
    assert annotations == ({} if chosen is None else {"kai.scheduler/topology": chosen[0], PREFERRED: chosen[1]})


@pytest.mark.parametrize(
    ("topologies", "says"),
    [
        ({"a": ("rack",), "b": ("row",)}, r"Topologies: a, b"),
        ({}, "Topologies: none"),
        (None, "that this account may not list"),
    ],
)
def test_one_tile_without_a_level_of_groups_is_refused(topologies, says):
    with pytest.raises(ConfigError, match=f'wanted its 4 pods in one group, found .*{says}.*"gates" works'):
        found(tile=4, topologies=topologies)


@pytest.mark.parametrize(
    ("wanted", "queues", "says"),
    [
        ("nlp", ("gpus",), "wanted a queue nlp of KAI without queues below it, found gpus"),
        (None, ("a", "b"), "wanted the name of a queue of KAI, found none; its queues: a, b"),
        (None, (), "its queues: none at all"),
        (None, None, "its queues: not known to this account"),
    ],
)
def test_queue_that_is_not_there_is_refused_with_those_that_are(wanted, queues, says):
    with pytest.raises(ConfigError, match=says):
        found(queue=wanted, queues=queues)


def test_queue_is_the_gangs_the_sites_or_the_only_one():
    assert found().labels == {"kai.scheduler/queue": "gpus"}
    assert found(queue="b", queues=("a", "b")).labels == {"kai.scheduler/queue": "b"}
    assert found(podset=replace(GPU, queue="a"), queue="b", queues=("a", "b")).labels == {"kai.scheduler/queue": "a"}
    assert kai_metadata(GPU, "nlp", KaiFacts()).labels == {"kai.scheduler/queue": "nlp"}
