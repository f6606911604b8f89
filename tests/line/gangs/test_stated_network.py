"""The stated network with what the store has of it."""

from dataclasses import replace

import pytest
from tests.fabric.probe.test_measured_links import FABRIC, measured
from tests.line.gangs.test_podsets import line_of, plan_of

from gangline.line.gangs.stated_network import (
    keep_measurement,
    network_environment,
    planned_network,
    read_measurement,
    stated_network,
)
from gangline.storage.folder.store import FolderStore


def test_newest_measurement_counts_and_each_keeps_its_own_blob(tmp_path):
    store = FolderStore(tmp_path)
    assert read_measurement(store) is None
    assert planned_network(FABRIC, store).fabric == FABRIC
    first = keep_measurement(store, measured(0.6e9))
    second = keep_measurement(store, measured(1.2e9))
    assert first != second
    assert store.head(first) is not None
    found = planned_network(FABRIC, store)
    assert found.fabric.nic_bytes_per_second == 1.2e9
    assert found.links.startswith("measured 1.2 GB/s on 2026-11-26")
    assert planned_network(None, store) is None


def test_fabric_is_that_of_the_environment(tmp_path):
    file = tmp_path / "fabric.toml"
    file.write_text('[fabric]\ngroups = [{ name = "g", servers = "a[1-2]" }]\n')
    assert stated_network({"GANGLINE_FABRIC": str(file)}).servers == ("a1", "a2")
    assert stated_network({"HOME": str(tmp_path)}) is None


HASHED = {"NCCL_CROSS_NIC": "0", "NCCL_IB_QPS_PER_CONNECTION": "4"}


@pytest.mark.parametrize(
    ("policy", "device", "env", "wanted"),
    [
        ("hash", "cuda", {"NCCL_IB_SPLIT_DATA_ON_QPS": "0"}, HASHED),
        ("spray", "cuda", {"NCCL_CROSS_NIC": "1"}, {"NCCL_IB_ADAPTIVE_ROUTING": "1"}),
        ("unknown", "cuda", {}, {}),
        ("hash", "cpu", {}, {}),
    ],
)  # fmt: skip
def test_ranks_on_gpus_get_what_a_declared_policy_wants_and_the_line_does_not_set(policy, device, env, wanted):
    line = replace(line_of(2), train=replace(line_of(2).train, env=env))
    fabric = replace(FABRIC, path_policy=policy, connections=4)
    assert network_environment(fabric, plan_of(2, device), line) == wanted
    assert network_environment(None, plan_of(2, device), line) == {}
