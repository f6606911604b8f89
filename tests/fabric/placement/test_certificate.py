"""The certificate: the reference case to its digits, the order that it was given, and what it does not know."""

from dataclasses import replace

import pytest
from tests.fabric.placement.edges import edges_of_175_billion

from gangline.errors import ConfigError
from gangline.fabric.placement.certificate import Certificate, PlanTraffic, certify
from gangline.fabric.placement.mapping import bytes_between, least_data_crossings, server_order
from gangline.fabric.placement.tiles import map_cells, node_order
from gangline.fabric.placement.training import REFERENCE_FABRIC
from gangline.fabric.traffic.order_paths import RingTraffic

EDGES = edges_of_175_billion(128, 16)
RING = RingTraffic(wire_bytes=EDGES.data, ranks=128, rank_stride=8)
TRAFFIC = PlanTraffic(
    replicas=128, stages=16, rings=(RING,), stage_edge_bytes=EDGES.stage, compute_seconds=10.94 / 2.182 / 4,
    hours=14.3 * 24, write_seconds=7.0,
)  # fmt: skip


def test_line_of_the_reference_case():
    line = certify(REFERENCE_FABRIC, REFERENCE_FABRIC.servers, TRAFFIC).line
    assert line == (
        "groups 32 (bound 32) · DP crossings 32 (bound 32) · PP crossings 1,920 · 463.5 GB a rail and step · "
        "busiest uplink 1.0 flows (bound 1.0) · all-reduce 20.2 GB/s alg · speed-up 90.2 % · P(interrupt) 1.00 · "
        "checkpoint every 6.5 min · policy hash (given) · computed"
    )


def test_it_judges_the_order_that_it_was_given():
    """Neighbours of a ring in different groups: every edge crosses."""
    bad = [group.servers[at] for at in range(64) for group in REFERENCE_FABRIC.groups]
    found = certify(REFERENCE_FABRIC, bad, TRAFFIC)
    assert (found.data_crossings, found.stage_crossings) == (2048, 0)
    assert found.busiest_flows == pytest.approx(6.1, abs=0.1)
    assert found.speed_up < 0.61


def test_it_counts_what_the_mapping_counted():
    shares = {group.name: 64 for group in REFERENCE_FABRIC.groups}
    mapping = map_cells(shares, replicas=128, stages=16, edges=EDGES, swaps=0)
    order = server_order(mapping, {group.name: group.servers for group in REFERENCE_FABRIC.groups})
    found = certify(REFERENCE_FABRIC, order, TRAFFIC)
    assert found.bytes_between == bytes_between(mapping, EDGES)
    assert found.least_data_crossings == least_data_crossings([64] * 32, 128)


def test_servers_of_an_uneven_gang_are_ordered_and_certified():
    groups = REFERENCE_FABRIC.groups[:3]
    servers = [server for group, count in zip(groups, (26, 12, 10), strict=True) for server in group.servers[:count]]
    shares = {"g00": 26, "g01": 12, "g02": 10}
    order = node_order(REFERENCE_FABRIC, servers[::-1], replicas=12, stages=4, edges=EDGES)
    assert sorted(order) == servers
    found = certify(REFERENCE_FABRIC, order, replace(TRAFFIC, replicas=12, stages=4, rings=(replace(RING, ranks=12),)))
    assert (found.groups, found.least_groups) == (3, 1)
    assert found.bytes_between == bytes_between(map_cells(shares, replicas=12, stages=4, edges=EDGES), EDGES)


def test_one_stage_is_a_ring():
    servers = REFERENCE_FABRIC.servers[:128]
    assert node_order(REFERENCE_FABRIC, reversed(servers), replicas=128, edges=EDGES) == servers
    with pytest.raises(ConfigError, match="wants 127 servers"):
        node_order(REFERENCE_FABRIC, servers, replicas=127, edges=EDGES)


def test_what_is_not_known_is_said():
    fabric = replace(REFERENCE_FABRIC, leaf_uplinks=None, nic_bytes_per_second=None, path_policy="unknown")
    traffic = replace(TRAFFIC, compute_seconds=None, hours=None, write_seconds=None)
    found = certify(fabric, fabric.servers, traffic)
    assert (found.busiest_flows, found.algorithm_bytes_per_second, found.speed_up) == (None, None, None)
    assert "busiest uplink not known · all-reduce not known · speed-up not known" in found.line
    assert "policy unknown (counted as hash)" in found.line


def test_a_gang_in_one_group_uses_no_uplink():
    found = certify(
        REFERENCE_FABRIC,
        REFERENCE_FABRIC.servers[:64],
        replace(TRAFFIC, replicas=64, stages=1, rings=(replace(RING, ranks=64),)),
    )
    assert (found.groups, found.data_crossings, found.busiest_flows) == (1, 0, 0.0)
    assert "no uplink" in found.line


def test_it_survives_json():
    found = certify(REFERENCE_FABRIC, REFERENCE_FABRIC.servers, TRAFFIC)
    assert Certificate.from_json(found.to_json()) == found


def test_servers_that_do_not_fit_the_plan_are_refused():
    with pytest.raises(ConfigError, match="wanted 128 x 16 servers for replicas and stages, found 2"):
        certify(REFERENCE_FABRIC, REFERENCE_FABRIC.servers[:2], TRAFFIC)
    with pytest.raises(ConfigError, match="wanted servers of the fabric, found z9"):
        certify(REFERENCE_FABRIC, ["z9"], TRAFFIC)
