"""What the record says of a gang whose tiles do not stand as the plan wants them."""

from dataclasses import replace

import pytest

from gangline.launch.local import LocalLauncher
from gangline.launch.protocol import GangEvent, GangStatus
from gangline.spec.config.site import LaunchTable
from gangline.spec.gang.podset import PlacedServer
from gangline.spec.record import SPLIT

pytestmark = pytest.mark.row("V11")
GROUPS = {"a": "leaf-1", "b": "leaf-1", "c": "leaf-2", "d": "leaf-2", "e": "leaf-3", "f": "leaf-3"}


@pytest.fixture
def run(workspace, monkeypatch):
    """The record of a run whose gang stood on these servers in turn, in tiles of two nodes."""

    def follow(*orders, groups=GROUPS, tile=2, route="auto"):
        events = LocalLauncher.follow

        def placed(launcher, name):
            for order in orders:
                known = tuple(PlacedServer(name=each, group=groups.get(each, "")) for each in order)
                status = GangStatus(state="running", servers=tuple(order), placed=known, tile=tile)
                yield GangEvent(kind="state", text="running", status=status)
                seen.append(workspace.records()[0].gang.order)
            yield from events(launcher, name)

        monkeypatch.setattr(LocalLauncher, "follow", placed)
        workspace.site = replace(workspace.site, launch=LaunchTable(route=route))
        seen = []
        return workspace.run(), seen

    return follow


def said(record):
    return [event.text for event in record.events if event.kind == SPLIT]


def test_split_tiles_are_named_with_their_groups_and_what_keeps_them_in_record_and_at_the_terminal(workspace, run):
    record, (order,) = run("acbdef", route="volcano")
    assert (order.num_split, [(each.first, each.last) for each in order.split]) == (2, [(0, 1), (2, 3)])
    (text,) = said(record)
    assert text == (
        "2 of 3 tiles of 2 nodes do not share a group of servers as the plan wants: nodes 0 to 1 on leaf-1 and leaf-2,"
        " nodes 2 to 3 on leaf-1 and leaf-2; Volcano keeps them only where its scheduler has the plugin"
        " network-topology-aware (volcano-scheduler.conf) and HyperNodes of tier 1 are these groups; configure both,"
        " then run it again"
    )
    assert text in workspace.seen.notes


def test_tile_that_a_lost_node_split_is_reported_when_it_moved(run):
    record, (before, after) = run("badcfe", "abcefd")
    assert (before.num_split, after.num_split) == (0, 2)
    assert said(record)[0].endswith("nodes 2 to 3 on leaf-2 and leaf-3, nodes 4 to 5 on leaf-3 and leaf-2")


def test_tiles_on_servers_of_unknown_groups_are_neither_kept_nor_split(run):
    record, (order,) = run("acbdef", groups=GROUPS | {"f": ""}, route="volcano")
    assert (order.num_split, said(record)) == (None, [])


@pytest.mark.parametrize(
    ("number", "tile", "ends"), [(6, 6, "nodes 0 to 5 on s0 and s1 and s2 and s3 and 2 more"), (10, 2, ", 1 more")]
)
def test_of_many_the_first_are_named(run, number, tile, ends):
    servers = [f"s{each}" for each in range(number)]
    record, _ = run(servers, groups={each: each for each in servers}, tile=tile)
    assert said(record)[0].endswith(ends)
