"""What Volcano is handed of a gang, and what it is refused for by name."""

from dataclasses import replace

import pytest
from tests.launch.kubernetes.gangs import (
    CLASSES,
    GPU,
    GPU_SITE,
    PAIR,
    VOLCANO,
    setting,
    shared_setting,
    volcano_setting,
)
from tests.launch.kubernetes.templates import template_of

from gangline.errors import ConfigError
from gangline.launch.kubernetes.cluster.facts import VolcanoFacts
from gangline.launch.kubernetes.objects.render import render_as
from gangline.launch.kubernetes.objects.render_context import labels
from gangline.launch.kubernetes.objects.root_objects import overriding_trainjob
from gangline.launch.kubernetes.objects.volcano import pod_group
from gangline.spec.config.site import LaunchTable
from gangline.spec.gang.podset import Placement

KINDS = ("job", "jobset", "trainjob")
INDEX = "batch.kubernetes.io/job-completion-index"
ONE_GROUP = {"mode": "hard", "highestTierAllowed": 1}


def group(podset=GPU, facts=VOLCANO, queue=None):
    given = setting(
        podset, pod=GPU_SITE, route="volcano", facts=replace(CLASSES, volcano=facts), launch=LaunchTable(queue=queue)
    )
    return pod_group(given)["spec"]


def tiles(size, num_nodes=4, facts=VOLCANO):
    return group(replace(GPU, num_nodes=num_nodes, placement=Placement(tile=size)), facts)


@pytest.mark.parametrize("kind", KINDS)
def test_pods_name_their_group_which_is_there_before_they_may_start(kind):
    found = render_as(kind, volcano_setting(tile=1))
    template = template_of(found)
    made = [thing for _, thing in found.around if thing["kind"] == "PodGroup"]
    assert [each["metadata"]["name"] for each in made] == [GPU.name]
    assert template["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == GPU.name
    assert template["spec"]["schedulerName"] == "volcano"
    assert "schedulingGates" not in template["spec"]
    assert (found.root["spec"]["suspend"], found.release) == (True, {"spec": {"suspend": False}})


def test_all_pods_start_or_none_with_what_they_ask_for_together():
    spec = group()
    assert (spec["minMember"], spec["queue"], spec["priorityClassName"]) == (4, "default", "gangline-high")
    assert spec["minResources"] == {
        "cpu": "256", "memory": str(4 * 618475290624), "nvidia.com/gpu": "32", "rdma/hca": "32"
    }  # fmt: skip


def test_odd_shares_of_cores_are_added_before_they_are_written():
    spec = group(replace(PAIR, resources=replace(PAIR.resources, cpus=0.75)))
    assert spec["minResources"]["cpu"] == "1500m"


def test_gang_that_is_one_tile_stays_in_one_group():
    assert tiles(4)["networkTopology"] == ONE_GROUP
    assert "subGroupPolicy" not in tiles(4)


def test_tiles_of_one_pod_stand_anywhere():
    assert not {"networkTopology", "subGroupPolicy"} & set(tiles(1))


@pytest.mark.parametrize(("num_nodes", "size"), [(4, 2), (12, 4), (7, 3)])
def test_each_rank_is_in_the_policy_of_its_tile_and_in_no_other(num_nodes, size):
    policies = tiles(size, num_nodes)["subGroupPolicy"]
    seen = {}
    for number, policy in enumerate(policies):
        (chosen,) = policy["labelSelector"]["matchExpressions"]
        assert (chosen["key"], chosen["operator"]) == (INDEX, "In")
        assert policy["networkTopology"] == ONE_GROUP
        assert (policy["subGroupSize"], policy["minSubGroups"]) == (len(chosen["values"]), 1)
        seen |= {int(rank): number for rank in chosen["values"]}
    assert seen == {rank: rank // size for rank in range(num_nodes)}
    assert len({policy["name"] for policy in policies}) == len(policies)


def test_policies_split_by_a_label_that_all_pods_have_alike():
    """Volcano takes a policy without `matchLabelKeys` for none, and one group a value for more."""
    assert {key for policy in tiles(2)["subGroupPolicy"] for key in policy["matchLabelKeys"]} == {"gangline/gang"}
    assert labels(GPU)["gangline/gang"] == GPU.name


def test_queue_of_the_gang_goes_before_that_of_the_site():
    assert group(queue="gpus")["queue"] == "gpus"
    assert group(replace(GPU, queue="gpus"), queue="default")["queue"] == "gpus"


@pytest.mark.parametrize(("queues", "known"), [(("default", "gpus"), "found default, gpus"), ((), "found none at all")])
def test_queue_that_is_not_open_is_refused_with_those_that_are(queues, known):
    with pytest.raises(ConfigError, match=f"wanted an open queue nlp of Volcano, {known}"):
        group(queue="nlp", facts=replace(VOLCANO, queues=queues))


def test_queues_and_tiers_that_this_account_may_not_list_are_left_to_volcano():
    unknown = VolcanoFacts(fields=VOLCANO.fields)
    assert group(queue="nlp", facts=unknown)["queue"] == "nlp"
    assert tiles(4, facts=unknown)["networkTopology"] == ONE_GROUP


@pytest.mark.parametrize(("size", "field"), [(4, "networkTopology"), (2, "subGroupPolicy")])
def test_volcano_that_would_drop_the_field_is_refused(size, field):
    facts = replace(VOLCANO, fields=tuple(each for each in VOLCANO.fields if each != field))
    with pytest.raises(ConfigError, match=f'found PodGroups without {field}; .* "gates" works'):
        tiles(size, facts=facts)


@pytest.mark.parametrize(("tiers", "known"), [((), "found tiers none at all"), ((2, 3), "found tiers 2, 3")])
def test_volcano_without_hypernodes_for_groups_is_refused(tiers, known):
    with pytest.raises(ConfigError, match=f"wanted HyperNodes of tier 1 .* {known}; create one a group"):
        tiles(2, facts=replace(VOLCANO, tiers=tiers))
    assert group(facts=replace(VOLCANO, tiers=tiers))["minMember"] == 4


def test_shared_runtime_that_cannot_name_a_scheduler_is_refused():
    given = replace(shared_setting("runtimePatches"), route="volcano")
    with pytest.raises(ConfigError, match="wanted schedulerName, found a Trainer whose TrainJobs cannot override it"):
        overriding_trainjob(given, "gangline", "runtimePatches")
