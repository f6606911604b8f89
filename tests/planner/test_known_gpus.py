"""Built-in kinds of GPU: whole figures, rates that are shares of them, and what a site or a fabric says first."""

from dataclasses import replace

import pytest
from tests.planner.cases import line

from gangline.errors import ConfigError
from gangline.fabric.topology.inventory import Fabric
from gangline.planner.known_gpus import (
    KnownGpu,
    hypothetical_inventory,
    known_gpus,
    peak_of,
    with_known_gpus,
    with_network,
)
from gangline.planner.pool import choose_precision, open_pool
from gangline.spec.config.rules_site import site_rules
from gangline.spec.config.site import GpuTable, Site
from gangline.spec.config.structure import bound_problems

OWN = GpuTable(memory_bytes=80e9, flops_per_second={"bf16": 500e12})


def asked(wanted, site=None, network=None):
    site = with_known_gpus(site or Site(), wanted)
    site = with_network(site, network) if network else site
    return site, hypothetical_inventory(site, wanted)


@pytest.mark.parametrize("name", known_gpus())
def test_every_kind_is_whole_and_planned_below_its_peak(name):
    table = known_gpus()[name]
    kind = table.published
    assert peak_of(kind.driver) == kind, "an earlier kind takes its driver's name"
    site = Site(gpu={name: table})
    assert [*bound_problems(site), *site_rules(site)] == []
    assert {"fp32", "fp16"} <= kind.flops_per_second.keys()
    for precision, peak in kind.flops_per_second.items():
        assert 0 < table.flops_per_second[precision] < peak
    assert 0 < table.memory_bytes_per_second < kind.memory_bytes_per_second
    assert 0 < table.link_bytes_per_second < kind.link_bytes_per_second
    assert 0 < table.network_bytes_per_second < kind.nic_bytes_per_second
    assert kind.link
    assert kind.source


@pytest.mark.parametrize(
    ("wanted", "name", "nodes", "memory"),
    [("h100:64", "h100", 8, 80e9), ("H100:64", "h100", 8, 80e9), ("a100-40gb:4", "a100-40gb", 1, 40e9),
     ("mi300x:16", "mi300x", 2, 192e9), ("h100-pcie:8", "h100-pcie", 1, 80e9)],
)  # fmt: skip
def test_a_kind_is_asked_for_without_any_file(wanted, name, nodes, memory):
    _, found = asked(wanted)
    assert (found.gpus.name, found.num_nodes, found.gpus.memory_bytes) == (name, nodes, memory)


def test_rates_of_a_built_in_kind_are_called_assumed():
    pool = open_pool(*asked("h100:64"))
    assert (pool.rates_origin, pool.exchange_origin) == ("assumed", "assumed, latency assumed")
    assert pool.gpu.flops_per_second["bf16"] == pytest.approx(0.45 * 989e12)
    assert pool.gpu.network_bytes_per_second == 40e9
    assert pool.gpu.price_per_hour is None


@pytest.mark.parametrize("name", ["h100", "H100", "NVIDIA H100 80GB HBM3"])
def test_what_the_site_describes_wins_also_by_the_drivers_name(name):
    site, found = asked("h100:8", Site(gpu={name: OWN}))
    assert site.gpu == {name: OWN}
    assert open_pool(site, found).rates_origin == "given"
    assert open_pool(site, found).gpu.flops_per_second == {"bf16": 500e12}


def test_a_kind_that_the_site_does_not_describe_is_planned_for_with_its_own():
    site, found = asked("h100:8,mine:8", Site(gpu={"mine": OWN}))
    assert found.device_names == "h100 and mine"
    assert [isinstance(site.gpu[each], KnownGpu) for each in ("h100", "mine")] == [True, False]


def test_links_that_a_fabric_states_are_not_called_assumed():
    network = Fabric(nic_bytes_per_second=25e9, intra_bus_bytes_per_second=300e9)
    pool = open_pool(*asked("h100:64", network=network))
    assert (pool.rates_origin, pool.exchange_origin) == ("assumed", "given, latency assumed")
    assert (pool.gpu.link_bytes_per_second, pool.gpu.network_bytes_per_second) == (300e9, 20e9)
    late = replace(network, nic_latency_seconds=5e-6, intra_latency_seconds=1e-6)
    assert open_pool(*asked("h100:64", network=late)).latency_origin == "given"


@pytest.mark.parametrize(("wanted", "precision"), [("t4:8", "fp16"), ("v100:8", "fp16"), ("l4:8", "bf16")])
def test_a_kind_without_bf16_is_planned_for_in_half_precision(wanted, precision):
    assert choose_precision(line(precision="auto"), asked(wanted)[1]) == precision


@pytest.mark.parametrize(("wanted", "found"), [("64", "no kind"), ("h10:64", "h10"), ("a100-others:8", "a100-others")])
def test_a_kind_that_is_not_known_is_refused_with_all_that_are(wanted, found):
    with pytest.raises(ConfigError) as caught:
        asked(wanted)
    assert f"found {found}; h100:{wanted.rpartition(':')[2]} works. Built in: b200, h200," in str(caught.value)
    assert "rtx4090; [gpu.NAME] of site.toml: none" in str(caught.value)
