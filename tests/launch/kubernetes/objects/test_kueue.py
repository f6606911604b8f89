"""What Kueue is told of a gang."""

from dataclasses import replace

import pytest
from tests.launch.kubernetes.gangs import GPU

from gangline.errors import ConfigError
from gangline.launch.kubernetes.cluster.facts import ClusterFacts
from gangline.launch.kubernetes.objects.kueue import choose_queue, kueue_metadata
from gangline.spec.config.site import LaunchTable
from gangline.spec.gang.podset import Placement

LEVEL, HOST = "gangline/fabric-group", "kubernetes.io/hostname"
LEVELS = ("gangline/fabric-block", LEVEL, HOST)
TAS = ClusterFacts(topologies=("racks",), queues={"shared": "gpus"}, levels={"shared": LEVELS})


def wishes(podset=GPU, facts=TAS):
    return kueue_metadata(podset, LaunchTable(), facts)


def test_the_only_queue_is_taken_and_the_root_is_labelled_with_it():
    assert wishes().root_labels == {"kueue.x-k8s.io/queue-name": "shared"}


def test_a_gangs_own_queue_goes_first():
    facts = replace(TAS, queues={"shared": "gpus", "own": "gpus"})
    assert wishes(podset=replace(GPU, queue="own"), facts=facts).root_labels["kueue.x-k8s.io/queue-name"] == "own"


@pytest.mark.parametrize(("wanted", "queues", "says"), [
    ("other", {"shared": "g"}, "wanted a LocalQueue other, found no queue of that name; this namespace has shared"),
    (None, {"a": "g", "b": "g"}, "found none; this namespace has a, b"),
    (None, {}, "this namespace has none at all"),
])  # fmt: skip
def test_a_queue_that_is_not_there_is_refused_with_those_that_are(wanted, queues, says):
    with pytest.raises(ConfigError, match=says):
        choose_queue(wanted, ClusterFacts(queues=queues))


@pytest.mark.parametrize(("levels", "tile", "annotations"), [
    (LEVELS, 1, {"podset-preferred-topology": LEVEL}),
    (LEVELS, 4, {"podset-required-topology": LEVEL}),
    (LEVELS, 2, {"podset-preferred-topology": LEVEL, "podset-slice-required-topology": LEVEL,
                 "podset-slice-size": "2"}),
    (("rack", HOST), 1, {"podset-preferred-topology": "rack"}),
    ((HOST,), 1, {"podset-preferred-topology": HOST}),
    ((HOST,), 2, {"podset-preferred-topology": HOST}),
    ((), 2, {}),
])  # fmt: skip
def test_consecutive_pods_go_to_the_narrowest_level_above_servers(levels, tile, annotations):
    found = wishes(
        replace(GPU, placement=Placement(tile=tile)), replace(TAS, levels={"shared": levels})
    ).pod_annotations
    assert found == {f"kueue.x-k8s.io/{key}": value for key, value in annotations.items()}


def test_one_pod_wishes_for_nothing_so_that_flavors_without_a_topology_take_it():
    assert wishes(podset=replace(GPU, num_nodes=1)).pod_annotations == {}


def test_queue_whose_levels_are_not_known_gets_no_annotations():
    assert wishes(facts=replace(TAS, levels={"another": LEVELS})).pod_annotations == {}


def test_a_tile_that_does_not_divide_the_gang_is_refused():
    with pytest.raises(ConfigError, match="wanted a tile that divides 4 pods, found 3"):
        wishes(replace(GPU, placement=Placement(tile=3)))
