"""A fabric and its file: what is written is read as the same fabric."""

from dataclasses import replace

import pytest

from gangline.fabric.placement.training import REFERENCE_FABRIC
from gangline.fabric.topology.clos import counts_of
from gangline.fabric.topology.fabric_file import fabric_of, fabric_text
from gangline.fabric.topology.inventory import Fabric, Group
from gangline.spec.config.fabric import FabricFile, FailureRates
from gangline.spec.config.load import load_text

STRANGE = Fabric(
    groups=(Group(name='a "b" \\ ü\n', servers=("x", "a9", "a10"), block="east"),),
    rails=4, dual_homed=True, nic_bytes_per_second=12.5e9, nic_bus_efficiency=0.75, connections=4,
    failures=FailureRates(gpu_hours=5e4, optic_hours=1e7),
)  # fmt: skip


@pytest.mark.parametrize("fabric", [REFERENCE_FABRIC, STRANGE, Fabric()])
def test_what_is_written_is_read_again(fabric):
    assert fabric_of(load_text(FabricFile, fabric_text(fabric), file="fabric.toml").fabric) == fabric


def test_defaults_and_what_is_not_known_are_not_written():
    text = fabric_text(replace(REFERENCE_FABRIC, groups=()))
    assert text == (
        '[fabric]\nnic_bytes_per_second = 50e9\nintra_bus_bytes_per_second = 200e9\nleaf_uplinks = 64\n'
        'path_policy = "hash"\ngroups = [\n]\n'
    )  # fmt: skip


def test_counts_of_the_reference_fabric():
    found = counts_of(REFERENCE_FABRIC)
    assert (found.servers, found.gpus, found.leaves, found.nic_cables) == (2048, 16_384, 256, 16_384)
    assert (found.uplinks, found.oversubscription) == (16_384, 1.0)


def test_two_homes_have_twice_the_leaves_and_cables():
    found = counts_of(STRANGE)
    assert (found.leaves, found.nic_cables, found.uplinks, found.oversubscription) == (8, 24, None, None)
