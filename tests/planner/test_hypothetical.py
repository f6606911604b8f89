"""GPUs that are not here: the site's kinds, whole servers, the links of a stated network."""

from dataclasses import replace

import pytest
from tests.planner.transformers import H100

from gangline.errors import ConfigError
from gangline.fabric.topology.inventory import Fabric
from gangline.planner.known_gpus import hypothetical_inventory, with_network
from gangline.planner.pool import open_pool
from gangline.spec.config.site import GpuTable, Site

TWO = Site(gpu={"a": GpuTable(memory_bytes=40e9), "b": GpuTable(memory_bytes=80e9)})


@pytest.mark.parametrize(
    ("wanted", "nodes", "inside"), [("16", 2, 8), ("16384", 2048, 8), ("4", 1, 4), ("h100:8", 1, 8)]
)
def test_servers_hold_the_gpus_that_are_asked_for(wanted, nodes, inside):
    found = hypothetical_inventory(H100, wanted)
    assert (found.num_nodes, found.gpus.count, found.gpus.name) == (nodes, inside, "h100")
    assert open_pool(H100, found).gpu.price_per_hour == 2.0


def test_servers_hold_shards_only_in_memory_that_the_site_states():
    assert open_pool(H100, hypothetical_inventory(H100, "16")).usable_host_bytes(8) == 0
    stated = Site(gpu={"h100": GpuTable(memory_bytes=80e9, host_memory_bytes=2e12)})
    pool = open_pool(stated, hypothetical_inventory(stated, "16"))
    assert 100e9 < pool.usable_host_bytes(8) < 250e9


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("12", "wanted whole servers of 8 GPUs, found 12; 8 or 16 works"),
        ("0", "wanted a number of GPUs up to 10,000,000, or NAME:NUMBER, found '0'"),
        ("9" * 30, "wanted a number of GPUs"),
        ("-8", "wanted a number of GPUs"),
        ("a:", "wanted a number of GPUs"),
        ("16", "found no kind; a:16 works. Built in: b200, h200, "),
        ("c:16", "[gpu.NAME] of site.toml: a, b"),
        ("a:16,b:12", "whole servers of 8 GPUs, found 12"),
        ("a:8,a:8", "wanted each kind of GPU once, found a, a"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_with_what_can(wanted, words):
    with pytest.raises(ConfigError) as caught:
        hypothetical_inventory(TWO if "a, b" in words or "a:16" in words or ":" in wanted[1:2] else H100, wanted)
    assert words in str(caught.value)


def test_servers_of_several_kinds_are_asked_for_together():
    found = hypothetical_inventory(TWO, "b:16,a:8")
    assert [(each.gpus.name, each.num_nodes, each.gpus.memory_bytes) for each in found.kinds] == [
        ("b", 2, 80e9), ("a", 1, 40e9)
    ]  # fmt: skip
    assert found.device_names == "b and a"


def test_a_network_gives_links_and_failures_and_what_it_leaves_out_stays():
    network = Fabric(nic_bytes_per_second=50e9, failures="rsc1")
    found = with_network(H100, network)
    assert found.gpu["h100"].network_bytes_per_second == 40e9
    assert found.gpu["h100"].link_bytes_per_second == 300e9
    assert found.plan.failures == "rsc1"
    assert found.gpu["h100"].network_latency_seconds is None
    waits = replace(network, nic_latency_seconds=0.0, intra_latency_seconds=2e-6)
    stated = with_network(replace(H100, gpu={"h100": replace(H100.gpu["h100"], network_latency_seconds=1e-5)}), waits)
    assert (stated.gpu["h100"].network_latency_seconds, stated.gpu["h100"].link_latency_seconds) == (0.0, 2e-6)
