"""What a follower makes of the admission of its gang: servers with their groups, quota, evictions."""

import copy

import pytest
from tests.cluster.fake.api import FakeApi
from tests.launch.kubernetes.placement.recorded import FACTS, RecordedGang

from gangline.fabric.placement.order import verify
from gangline.launch.kubernetes.client.api import ApiForbidden
from gangline.launch.kubernetes.cluster.rights import DRIVER
from gangline.launch.kubernetes.placement.kueue_admission import KueueAdmission, in_order_of_pods
from gangline.launch.kubernetes.state.gang_state import status_of
from gangline.spec.gang.podset import PlacedServer, PodSet

RACKS = {"gangline-1": "r1", "gangline-3": "r1", "gangline-2": "r2", "gangline-4": "r2"}


def looked(gang, api=None, pods=None):
    admission = KueueAdmission(api or gang.served(), facts=FACTS)
    admission.look(gang.root, gang.pods if pods is None else pods)
    return admission


def order(gang, admission, *, tile=1):
    """What the record says of the gang."""
    podset = PodSet(name="g", run="g", project="p", commit="c", procs_per_node=1, code="c", plan="p", store="s")
    placed = admission.placed(gang.pods)
    return verify(placed, status_of("running", gang.pods, podset, placed=placed).servers, tile=tile)


def test_groups_and_blocks_are_the_labels_of_the_levels_of_the_topology():
    gang = RecordedGang("admitted")
    placed = looked(gang).placed(gang.pods)
    assert [(server.name, server.group) for server in placed] == list(RACKS.items())
    assert {server.block for server in placed} == {"z1/b1"}
    found = order(gang, looked(gang))
    assert (found.num_groups, found.crossings, found.num_split, found.num_moved) == (2, 2, 0, 0)


def test_tiles_that_a_gang_of_kueue_has_in_two_racks_are_named():
    gang = RecordedGang("admitted")
    found = order(gang, looked(gang), tile=4)
    assert [(each.first, each.last, each.groups) for each in found.split] == [(0, 3, ("z1/b1/r1", "z1/b1/r2"))]


def test_topology_of_hosts_alone_leaves_the_groups_to_the_labels_of_the_network():
    gang = RecordedGang("admitted")
    del gang.topologies[0]["spec"]["levels"][:-1]
    for number, node in enumerate(gang.nodes):
        node["metadata"]["labels"]["gangline/fabric-group"] = f"leaf-{number % 2}"
    placed = looked(gang).placed(gang.pods)
    assert {server.group for server in placed} == {"leaf-0", "leaf-1"}


def test_group_is_not_known_of_a_node_that_lacks_a_level_or_may_not_be_read():
    gang = RecordedGang("admitted")
    (first,) = (node for node in gang.nodes if node["metadata"]["name"] == "gangline-1")
    del first["metadata"]["labels"]["cloud.provider.com/topology-block"]
    admission = looked(gang)
    assert admission.unknown == "gangline-1 has no label of the network"
    assert order(gang, admission).num_groups is None
    denied = RecordedGang("admitted").served()
    denied.server.denied.add(("list", "nodes"))
    admission = looked(gang, denied)
    assert admission.unknown == "this account may not list nodes (gangline-reader)"
    assert [server.name for server in admission.placed(gang.pods)] == list(RACKS)


def test_account_that_may_not_read_flavors_knows_the_servers_and_asks_once():
    gang = RecordedGang("admitted")
    api = FakeApi(server=gang.served().server, rights=DRIVER)
    admission = KueueAdmission(api, facts=FACTS)
    with pytest.raises(ApiForbidden):
        admission.look(gang.root, gang.pods)
    assert [server.name for server in admission.placed(gang.pods)] == list(RACKS)
    assert "resourceflavors" in admission.unknown
    admission._looked = float("-inf")
    assert not admission.is_due(gang.root, gang.pods)


def test_pods_that_stayed_while_kueue_sorted_its_servers_again_are_where_it_put_them():
    gang = RecordedGang("after-a-server-is-lost")
    admission = looked(gang)
    assert order(gang, admission).num_moved == 0
    assert [server.name for server in admission.placed(gang.pods)] != [server.name for server in admission._assigned]


def test_pod_on_a_server_that_kueue_did_not_give_has_moved():
    gang = RecordedGang("admitted")
    gang.pods[2]["spec"] |= {"nodeName": "elsewhere", "nodeSelector": {}}
    placed = [PlacedServer(name=name) for name in RACKS]
    assert [each.name for each in in_order_of_pods(placed, gang.pods)] == list(RACKS)
    podset = PodSet(name="g", run="g", project="p", commit="c", procs_per_node=1, code="c", plan="p", store="s")
    servers = status_of("running", gang.pods, podset).servers
    (moved,) = verify(in_order_of_pods(placed, gang.pods), servers).moved
    assert (moved.node_rank, moved.placed, moved.found) == (2, "gangline-2", "elsewhere")


def test_servers_are_not_known_while_a_bound_pod_was_not_looked_at():
    gang = RecordedGang("admitted")
    admission = looked(gang)
    newer = copy.deepcopy(gang.pods[0])
    newer["metadata"]["uid"] = "newer"
    assert admission.placed([newer, *gang.pods[1:]]) == ()


def test_pods_of_an_earlier_admission_say_nothing_of_the_present_one():
    gang = RecordedGang("admitted-again")
    old, *_ = (pod for pod in gang.pods if pod["status"]["phase"] == "Failed")
    assert "gangline/second" not in old["spec"]["nodeSelector"], "its flavor was another one"
    admission = looked(gang)
    assert admission.wrong == ""
    assert len(admission.placed(gang.pods)) == 4


def test_watch_that_lags_behind_stops_no_gang():
    gang = RecordedGang("admitted-again")
    lagging = copy.deepcopy(gang.pods)
    for pod in lagging:
        pod["status"]["phase"] = "Running"
    assert looked(gang, pods=lagging).wrong == ""


def test_gang_that_is_evicted_while_it_is_looked_at_is_judged_at_the_next_look():
    gang = RecordedGang("admitted-again")
    for pod in gang.pods:
        pod["status"]["phase"] = "Running"
    api = gang.served()

    def evict_between(request, proceed):
        if request.path.endswith("/pods"):
            RecordedGang("evicted").write_to(api)
        return proceed()

    api.hooks.append(evict_between)
    admission = looked(gang, api)
    assert admission.wrong == ""
    assert admission.placed(gang.pods) == (), "nothing was checked"
