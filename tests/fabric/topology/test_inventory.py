"""The inventory: distances, sizes in words, and what cannot be."""

import pytest

from gangline.fabric.topology.inventory import Fabric, Group, scale_of

FABRIC = Fabric(
    groups=(Group(name="g1", servers=("a1", "a2")), Group(name="g2", servers=("b1", "b2"), block="east")),
    nic_bytes_per_second=50e9, leaf_uplinks=2,
)  # fmt: skip


def test_servers_are_in_the_order_of_groups_and_positions():
    assert FABRIC.servers == ("a1", "a2", "b1", "b2")
    assert FABRIC.num_gpus == 32
    assert FABRIC.by_server["b1"].block == "east"


@pytest.mark.parametrize(
    ("gpus", "word"),
    [(99, "small"), (100, "middle"), (1000, "middle"), (1001, "large"), (10_000, "large"), (10_001, "super-large")],
)
def test_a_size_in_words(gpus, word):
    assert scale_of(gpus) == word


def test_it_survives_json_and_its_digest_is_that_of_its_content():
    again = Fabric.from_json(FABRIC.to_json())
    assert again == FABRIC
    assert again.digest == FABRIC.digest != Fabric().digest
