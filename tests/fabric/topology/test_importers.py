"""Groups and blocks, read from the labels that clouds and tools write."""

import pytest

from gangline.errors import ConfigError
from gangline.fabric.topology.importers import FAMILIES, Location, NodeLabels, locate, read_groups


def nodes_labels(*labels, leaves=()):
    sets = [*leaves, *[()] * len(labels)]
    return [NodeLabels(node=f"n{i}", labels=each, leaves=frozenset(sets[i])) for i, each in enumerate(labels)]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family[0])
def test_each_family_says_group_and_block(family):
    found = locate(nodes_labels({family[0]: "leaf", family[1]: "spine"}))["n0"]
    assert (found.group, found.block, found.source_labels) == ("leaf", "spine", family)


def test_the_first_family_that_any_node_carries_is_the_clusters():
    ours, zone = FAMILIES[0][0], FAMILIES[-1][0]
    found = locate(nodes_labels({ours: "g1", zone: "z1"}, {zone: "z1"}))
    assert (found["n0"].group, found["n1"].group) == ("g1", "")


def test_without_labels_nothing_is_known():
    assert locate(nodes_labels({}))["n0"].group == ""


def test_a_label_that_names_one_leaf_of_eight_folds_into_its_group():
    label, rails = FAMILIES[0][0], [{f"leaf-{i}" for i in range(8)}] * 2
    found = locate(nodes_labels({label: "leaf-3"}, {label: "leaf-5"}, {label: "leaf-9"}, leaves=[*rails, {"leaf-9"}]))
    assert [found[f"n{i}"].group for i in range(3)] == ["leaf-3", "leaf-3", "leaf-9"]


def test_unlike_leaf_sets_under_one_value_are_refused_by_name():
    label = FAMILIES[0][0]
    with pytest.raises(ConfigError, match=r"gangline/fabric-group=g1.*\{a, b\} on n0 and \{a, c\} on n1"):
        locate(nodes_labels({label: "g1"}, {label: "g1"}, leaves=[{"a", "b"}, {"a", "c"}]))


def test_groups_hold_their_servers_in_order_of_names_and_a_name_of_two_blocks_says_which():
    at = {f"n{i}": Location(group="g", block="b1") for i in (10, 9)}
    at |= {"m": Location(group="g", block="b2"), "k": Location(group="h", block="b2"), "control": Location()}
    found = [(group.name, group.block, group.servers) for group in read_groups(at)]
    assert found == [("b1/g", "b1", ("n9", "n10")), ("b2/g", "b2", ("m",)), ("h", "b2", ("k",))]
