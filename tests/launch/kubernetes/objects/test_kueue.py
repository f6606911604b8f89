"""What Kueue is told of a gang."""

from dataclasses import replace

import pytest
from tests.launch.kubernetes.gangs import GPU

from gangline.errors import ConfigError
from gangline.launch.kubernetes.cluster.facts import ClusterFacts
from gangline.launch.kubernetes.objects.kueue import choose_queue, kueue_metadata
from gangline.spec.config.site import LaunchTable
from gangline.spec.gang.podset import Placement

TAS = ClusterFacts(topologies=("racks",), queues={"shared": "gpus"})
LEVEL = "gangline/fabric-group"
WISH = Placement(servers=(), devices_per_server=8, labels=(LEVEL,))


def wishes(wish=WISH, podset=GPU, facts=TAS):
    return kueue_metadata(podset, wish, LaunchTable(), facts)


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


@pytest.mark.parametrize(("wish", "annotations"), [
    (WISH, {"podset-preferred-topology": LEVEL}),
    (replace(WISH, tile=4), {"podset-required-topology": LEVEL}),
    (replace(WISH, tile=2), {"podset-preferred-topology": LEVEL, "podset-slice-required-topology": LEVEL,
                             "podset-slice-size": "2"}),
    (None, {}),
    (replace(WISH, labels=()), {}),
])  # fmt: skip
def test_wishes_for_consecutive_pods_are_annotations_of_the_template(wish, annotations):
    found = wishes(wish).pod_annotations
    assert found == {f"kueue.x-k8s.io/{key}": value for key, value in annotations.items()}


def test_one_pod_wishes_for_nothing_so_that_flavors_without_a_topology_take_it():
    assert wishes(podset=replace(GPU, num_nodes=1)).pod_annotations == {}


def test_without_a_topology_nothing_is_wished_for():
    assert wishes(facts=replace(TAS, topologies=())).pod_annotations == {}


def test_a_tile_that_does_not_divide_the_gang_is_refused():
    with pytest.raises(ConfigError, match="wanted a tile that divides 4 pods, found 3"):
        wishes(replace(WISH, tile=3))
