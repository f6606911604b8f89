"""Counts of switches and cables, against networks that are drawn and counted."""

from collections import Counter

import pytest

from gangline.errors import ConfigError
from gangline.fabric.topology.clos import clos_counts


def drawn(nics, radix, tiers):
    """(switches by tier, cables, most ports of any switch in use) of a network, cable by cable."""
    half, ports, cables = radix // 2, Counter(), 0
    below = [("nic", number) for number in range(nics)]
    switches = []
    for tier in range(tiers):
        last = tier == tiers - 1
        width = radix if last else half
        names = [(tier, number) for number in range(-(-len(below) // width))]
        for number, lower in enumerate(below):
            ports[names[number % len(names)]] += 1
            ports[lower] += 1
            cables += 1
        switches.append(len(names))
        below = [name for name in names for _ in range(ports[name])]  # as many ports up as down
    return switches, cables, max(count for name, count in ports.items() if name[0] != "nic")


@pytest.mark.parametrize("radix", range(2, 41, 2))
@pytest.mark.parametrize("tiers", [2, 3])
def test_counts_are_those_of_a_drawn_network(radix, tiers):
    for nics in {1, radix, radix * radix // 4, 2 * (radix // 2) ** tiers}:
        if nics > 2 * (radix // 2) ** tiers:
            continue
        found = clos_counts(nics, radix=radix, tiers=tiers)
        switches, cables, ports = drawn(nics, radix, tiers)
        assert ports <= radix
        assert found.cables == cables == tiers * nics
        by_tier = [found.leaves, found.spines, found.cores][:tiers]
        assert all(ours >= least for ours, least in zip(by_tier, switches, strict=True))
        if nics % (radix * radix // 2) == 0:
            assert by_tier == switches


def test_a_network_of_3000_nics_and_40_ports():
    found = clos_counts(3000, radix=40)
    assert (found.switches, found.cables, found.optics) == (375, 9000, 18_000)


def test_a_network_of_16384_nics_and_128_ports():
    found = clos_counts(16_384, radix=128)
    assert (found.leaves, found.spines, found.cores) == (256, 256, 128)
    assert (found.cables, found.optics) == (49_152, 98_304)
    assert 10e6 / found.optics / 24 == pytest.approx(4.24, abs=5e-3)
    assert pytest.approx(4.17, abs=5e-3) == 10e6 / 100_000 / 24


@pytest.mark.parametrize(
    ("nics", "radix", "tiers", "said"),
    [(0, 4, 3, "wants 1 NIC"), (4, 5, 3, "even"), (4, 4, 4, "4 tiers"), (9, 4, 2, "at most 8 NICs at full rate")],
)
def test_networks_that_cannot_be_are_refused(nics, radix, tiers, said):
    with pytest.raises(ConfigError, match=said):
        clos_counts(nics, radix=radix, tiers=tiers)
