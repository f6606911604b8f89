"""Formulas and probes of `fabric` against a network that is there: ring orders, hashed uplinks, links that die."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import fmean, stdev

import pytest

from gangline.fabric.placement.training import ring_bandwidth
from gangline.fabric.topology.inventory import Fabric, Group
from gangline.fabric.traffic.collectives import bus_factor
from gangline.fabric.traffic.paths import hashed_load, path_load
from gangline.fabric.traffic.rings import crossing_flows, ring_crossings, ring_order

pytestmark = pytest.mark.tools
ROOT = Path(__file__).parents[3]
MEGABITS, SIZE_BYTES = 40, 6_000_000
FRAME = 1448 / 1514
"""Of the bytes on a link those that TCP carries."""
HEADERS = 1.10
"""Most bytes on a link for a byte of a tensor: frames, and acknowledgements of what flows the other way."""
GROUPS = {"a": ("a0", "a1", "a2", "a3"), "b": ("b0", "b1", "b2", "b3")}
FABRIC = Fabric(
    groups=tuple(Group(name=name, servers=servers) for name, servers in GROUPS.items()), rails=1, leaf_uplinks=1,
    nic_bytes_per_second=MEGABITS * 1e6 / 8, nic_bus_efficiency=FRAME, path_policy="pinned",
)  # fmt: skip
GROUP_OF = {server: group for group, servers in GROUPS.items() for server in servers}


def in_a_box(scenario, *, needs=("ip", "tc"), **options):
    """The answer of a scenario, which runs in network namespaces that end with it."""
    missing = [each for each in ("unshare", *needs) if shutil.which(each) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"no fabric in a box: wanted root, unshare, {', '.join(needs)}; missing: {missing or 'root'}")
    Path("/run/netns").mkdir(exist_ok=True)  # the box mounts its own over it
    command = [sys.executable, "-m", "tests.fabric.box.scenarios", scenario, json.dumps(options)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        ["unshare", "--net", "--mount", *command], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


PLAN = ring_order(FABRIC, reversed(FABRIC.servers))
WORST = tuple(server for pair in zip(*GROUPS.values(), strict=True) for server in pair)


@pytest.mark.parametrize(("order", "crossings"), [(PLAN, 2), (WORST, 8)], ids=["plan", "worst"])
def test_a_ring_sends_and_takes_what_its_order_says(order, crossings):
    assert ring_crossings(order, GROUP_OF) == crossings
    flows = crossing_flows(order, GROUP_OF)
    found = in_a_box("ring", order=order, size_bytes=SIZE_BYTES, megabits=MEGABITS)
    for group, [sent] in found["sent"].items():
        reported = flows[group] * bus_factor("all_reduce", len(order)) * SIZE_BYTES
        assert reported <= sent <= HEADERS * reported
    load = path_load("pinned", list(flows.values()), uplinks=1)
    seconds = SIZE_BYTES / ring_bandwidth(FABRIC, load, ranks=len(order))
    print(f"forecast {seconds:.2f} s, took {found['seconds']:.2f} s; bytes {found['sent']}")
    assert found["seconds"] == pytest.approx(seconds, rel=0.20)


def test_hashed_flows_fill_the_busiest_uplink_as_the_formula_says():
    flows = uplinks = 8
    busiest = in_a_box("hashed", policy="hash", flows=flows, uplinks=uplinks, rounds=120)
    error = stdev(busiest) / len(busiest) ** 0.5
    reported = hashed_load(((flows, 1),), uplinks=uplinks).busiest_flows
    print(f"formula {reported:.3f}, {len(busiest)} rounds {fmean(busiest):.3f} +- {error:.3f}")
    assert abs(fmean(busiest) - reported) < 4 * error
    assert error < 0.1


def test_pinned_flows_share_uplinks_evenly():
    busiest = in_a_box("hashed", policy="pinned", flows=8, uplinks=3, rounds=3)
    assert busiest == [path_load("pinned", [8], uplinks=3).busiest_flows] * 3


def test_nothing_is_named_where_nothing_is_wrong():
    found = in_a_box("probes", failure="none", seconds=2.0, flows=8)
    assert (found["named"], found["unreachable"], found["sent"]) == ([], [], 6 * 5 * 20)


@pytest.mark.parametrize(
    ("failure", "named"),
    [("host", [["sick_host", ["c0"]]]), ("group", [["lossy_link", ["leaf c", "uplinks c"]]])],
)
def test_a_dead_link_is_named_in_two_seconds(failure, named):
    found = in_a_box("probes", failure=failure, seconds=0.5, flows=8)
    assert found["named"] == named
    assert found["seconds"] < 2


LOSSES = [("uplink", 1.0), ("lossy", 8.0), pytest.param("link", 28.0, marks=pytest.mark.slow)]


@pytest.mark.parametrize(("failure", "seconds"), LOSSES)
def test_uplinks_that_lose_packets_and_look_healthy_are_named(failure, seconds):
    """One of two that loses all or 10 %, both that lose 1 %."""
    found = in_a_box("probes", needs=("ip", "tc", "nft"), failure=failure, seconds=seconds, flows=8)
    assert [kind for kind, _ in found["named"]] == ["lossy_link"]
    assert found["named"][0][1] == ["uplinks c"]
