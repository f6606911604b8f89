"""The placer on a cluster in memory: which gang starts, where and when, and what it holds."""

import random

import pytest
from tests.launch.kubernetes.cluster_stand import Stand, watch_over

from gangline.fabric.topology.inventory import Fabric, Group
from gangline.launch.kubernetes.placement.placer import Placer
from gangline.spec.gang.podset import PipelineTraffic, Placement, ServerKind


def test_a_gang_starts_whole_each_rank_on_its_server(stand):
    stand.submit(num_pods=3)
    done = stand.settle()
    assert stand.bound() == {0: "a", 1: "b", 2: "c"}
    assert [each.kind for each in done] == ["promised", "opened", "whole"]
    assert stand.root()["metadata"]["annotations"]["gangline/servers"] == "a,b,c"


def test_consecutive_pods_of_a_tile_share_a_group():
    at = {"a": "g1", "b": "g2", "c": "g2", "d": "g3", "e": "g3"}
    labels = {name: {"gangline/fabric-group": group} for name, group in at.items()}
    stand = Stand(dict.fromkeys(at, 1), labels=labels)
    stand.submit(num_pods=4, placement=Placement(tile=2))
    stand.settle()
    assert stand.bound() == {0: "b", 1: "c", 2: "d", 3: "e"}


def test_stages_that_talk_more_than_replicas_share_a_group():
    """Node ranks 0 and 2 are the two stages of one replica, 1 and 3 those of the other."""
    groups = {"a": "g1", "b": "g1", "c": "g2", "d": "g2"}
    labels = {name: {"gangline/fabric-group": group} for name, group in groups.items()}
    for data, stage, wanted in ((1.0, 10.0, "acbd"), (10.0, 1.0, "abcd")):
        stand = Stand(dict.fromkeys(groups, 1), labels=labels)
        traffic = PipelineTraffic(stages=2, data_edge_bytes=data, stage_edge_bytes=stage)
        stand.submit(num_pods=4, placement=Placement(pipeline=traffic))
        stand.settle()
        assert "".join(stand.bound()[rank] for rank in range(4)) == wanted


def test_a_stated_fabric_groups_servers_that_have_no_labels_and_no_others():
    fabric = Fabric(groups=(Group(name="g1", servers=("a", "c")), Group(name="g2", servers=("b", "d"))))
    stand = Stand(dict.fromkeys("abcd", 1), fabric=fabric)
    stand.submit(num_pods=2)
    stand.settle()
    assert stand.bound() == {0: "a", 1: "c"}
    assert stand.root()["metadata"]["annotations"]["gangline/groups"] == "/g1*2"
    at = {name: {"gangline/fabric-group": group} for name, group in zip("abcd", ("g1", "g1", "g2", "g2"), strict=True)}
    labelled = Stand(dict.fromkeys("abcd", 1), fabric=fabric, labels=at)
    labelled.submit(num_pods=2)
    labelled.settle()
    assert labelled.bound() == {0: "a", 1: "b"}


@pytest.mark.row("K6")
def test_with_room_for_three_of_four_pods_none_starts_until_there_is_room():
    stand = Stand({"a": 1, "b": 1, "c": 1})
    watch_over(stand)
    stand.submit(num_pods=4)
    stand.settle(20)
    assert (stand.pods(), stand.root()["spec"]["suspend"]) == ({}, True)
    assert stand.waits().startswith(
        "4 pods of 1 cpu, 1.0 MB memory never fit: 3 pods would fit if all servers were empty"
    )
    stand.add("d", 1)
    stand.settle()
    assert len(stand.bound()) == 4
    assert stand.waits() is None


@pytest.mark.row("K6", full="200 gangs in turn")
@pytest.mark.parametrize("number", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_of_many_gangs_none_ever_starts_in_part_and_each_has_its_turn(seed, number):
    dice = random.Random(seed)
    stand = Stand(dict.fromkeys("abcd", 1))
    watch_over(stand)
    sizes = {f"g{count}": dice.randint(1, 4) for count in range(number)}
    coming, there, ended = list(sizes), [], []
    for _ in range(30 * number):
        if coming and len(there) < 6:
            there.append(coming.pop())
            stand.submit(there[-1], sizes[there[-1]])
        stand.turn(seconds=10)
        bound = {name: len(stand.bound(name)) for name in there}
        assert all(count in (0, sizes[name]) for name, count in bound.items()), bound
        for name in [name for name, count in bound.items() if count and dice.random() < 0.5]:
            stand.end(name)
            stand.api.delete(f"/apis/batch/v1/namespaces/gangs/jobs/{name}", propagation="Foreground")
            stand.move()
            there.remove(name)
            ended.append(name)
        if len(ended) == number:
            break
    assert sorted(ended) == sorted(sizes)


@pytest.mark.row("C6")
def test_of_two_gangs_for_one_place_the_older_starts_and_the_other_follows(stand):
    stand.submit("old", 3)
    stand.turn(seconds=5)
    stand.submit("new", 3)
    stand.settle()
    assert (len(stand.bound("old")), stand.pods("new")) == (3, {})
    assert stand.waits("new") == (
        "3 pods of 1 cpu, 1.0 MB memory need room: 1 fit now on 4 servers; old holds 3 servers; there is room once old "
        "ends"
    )
    stand.end("old")
    stand.settle()
    assert (len(stand.bound("new")), list(stand.reservations())) == (3, ["new"])


def test_priority_goes_before_age(stand):
    stand.submit("old", 3, priority="low")
    stand.now += (stand.now - stand.now.replace(microsecond=0)) * 2
    stand.submit("new", 3, priority="high")
    stand.settle()
    assert (len(stand.bound("new")), stand.pods("old")) == (3, {})


def test_small_gangs_overtake_until_a_large_one_has_waited_its_turn(stand):
    stand.submit("first", 2)
    stand.settle()
    stand.submit("large", 3)
    stand.turn(seconds=1)
    stand.submit("small", 1)
    stand.settle()
    assert len(stand.bound("small")) == 1
    stand.turn(seconds=600)
    stand.submit("late", 1)
    stand.settle()
    assert stand.pods("late") == {}
    assert stand.waits("late") == "waits behind large, for which servers are kept free"
    stand.end("first")
    stand.settle()
    assert len(stand.bound("large")) == 3


def test_a_gang_that_never_fits_holds_no_one_back(stand):
    stand.submit("huge", 9)
    stand.turn(seconds=700)
    stand.submit("small", 2)
    stand.settle()
    assert len(stand.bound("small")) == 2


def test_a_sentence_is_written_once(stand):
    stand.submit(num_pods=9)
    stand.settle(3)
    before = stand.placing.calls["patch", "jobs.batch"]
    stand.settle(5)
    assert stand.placing.calls["patch", "jobs.batch"] == before


@pytest.mark.parametrize("how", ["ended", "cancelled", "deleted"])
def test_a_gang_that_is_over_holds_nothing(stand, how):
    stand.submit(num_pods=2)
    stand.settle()
    path = "/apis/batch/v1/namespaces/gangs/jobs/g"
    if how == "ended":
        stand.end("g")
    elif how == "cancelled":
        stand.api.patch(path, {"metadata": {"annotations": {"gangline/cancelled": "enough"}}})
    else:
        stand.api.delete(path)
    stand.submit("other", 1)
    stand.settle(2)
    assert list(stand.reservations()) == ["other"]


def test_a_cancelled_gang_is_not_started(stand):
    stand.submit(num_pods=2)
    path = "/apis/batch/v1/namespaces/gangs/jobs/g"
    stand.api.patch(path, {"metadata": {"annotations": {"gangline/cancelled": "enough"}}})
    stand.settle(3)
    assert stand.root()["spec"]["suspend"]


def test_pools_share_no_servers():
    stand = Stand({"a": 1, "b": 1}, labels={"b": {"gangline/pool": "fast"}})
    stand.submit("slow", 1)
    stand.submit("quick", 1, pool="fast")
    stand.settle()
    assert (stand.bound("slow"), stand.bound("quick")) == ({0: "a"}, {0: "b"})
    stand.submit("more", 1)
    stand.settle()
    assert stand.pods("more") == {}


def test_several_pods_of_a_gang_share_a_server_that_has_room():
    stand = Stand({"a": 3, "b": 2})
    watch_over(stand)
    stand.submit(num_pods=4)
    stand.settle()
    assert stand.bound() == {0: "a", 1: "a", 2: "a", 3: "b"}


@pytest.mark.parametrize("kind", ["trainjob", "jobset"])
def test_other_roots_are_promised_servers_and_unsuspended(kind):
    stand = Stand({"a": 1, "b": 1}, serve=("trainer", "jobset"))
    stand.submit(num_pods=2, kind=kind)
    stand.turn()
    groups = {"trainjob": "trainer.kubeflow.org/v1alpha1", "jobset": "jobset.x-k8s.io/v1alpha2"}
    root = stand.api.get(f"/apis/{groups[kind]}/namespaces/gangs/{kind}s/g")
    assert (root["spec"]["suspend"], stand.reservations()) == (False, {"g": ["a", "b"]})


def test_two_placers_share_the_work_and_give_nothing_twice(stand):
    other = Placer(stand.placing, holder="two")
    for number in range(4):
        stand.submit(f"g{number}", 2)
    for _ in range(4):
        stand.turn()
        stand.turn(placer=other)
    assert sorted(stand.used().values()) == [1, 1, 1, 1]


def test_an_idle_cluster_costs_few_calls(stand):
    stand.submit(num_pods=2)
    stand.settle()
    before = sum(stand.placing.calls.values())
    stand.placer.step(stand.now)
    assert sum(stand.placing.calls.values()) - before <= 6


def test_gang_that_waits_says_whose_end_makes_room_and_what_would_start_now():
    stand = Stand({"a": 1, "b": 1, "c": 2, "d": 1})
    stand.submit("first", 3)
    stand.settle()
    stand.submit("second", 1)
    stand.settle()
    stand.submit("large", 3)
    stand.settle()
    notes = stand.root("large")["metadata"]["annotations"]
    assert notes["gangline/waits"].endswith(
        "first holds 2 servers, second holds 1 server; there is room once first ends"
    )
    assert notes["gangline/starts-now"] == "1 pod"
    stand.end("first")
    stand.settle(10)
    assert len(stand.bound("large")) == 3
    assert "gangline/starts-now" not in stand.root("large")["metadata"]["annotations"]


def test_groups_of_the_servers_are_noted_in_node_rank_order():
    labels = {
        name: {"gangline/fabric-group": f"g{i % 2}", "gangline/fabric-block": "b"} for i, name in enumerate("abc")
    }
    stand = Stand(dict.fromkeys("abc", 1), labels=labels)
    stand.submit(num_pods=3)
    stand.settle()
    notes = stand.root()["metadata"]["annotations"]
    assert (notes["gangline/servers"], notes["gangline/groups"]) == ("a,c,b", "b/g0*2,b/g1*1")


KINDS = Placement(
    kinds=(ServerKind(num_nodes=2, labels={"gpu": "fast"}), ServerKind(num_nodes=2, labels={"gpu": "slow"}))
)


def of_kinds(**kinds):
    return Stand(dict.fromkeys(kinds, 1), labels={name: {"gpu": kind} for name, kind in kinds.items()})


def test_pods_of_a_gang_of_two_kinds_go_to_servers_of_each_in_order():
    stand = of_kinds(a="slow", b="fast", c="slow", d="fast", e="fast")
    stand.submit(num_pods=4, placement=KINDS)
    stand.settle()
    assert stand.bound() == {0: "b", 1: "d", 2: "a", 3: "c"}


def test_gang_of_two_kinds_waits_whole_for_the_kind_that_lacks_servers():
    stand = of_kinds(a="slow", b="fast", d="fast", e="fast")
    watch_over(stand)
    stand.submit(num_pods=4, placement=KINDS)
    stand.settle()
    assert (stand.pods(), stand.reservations()) == ({}, {})
    assert "2 pods of 1 cpu, 1.0 MB memory never fit: 1 pod" in stand.waits()
    stand.add("f", 1, gpu="slow")
    stand.settle()
    assert stand.bound() == {0: "b", 1: "d", 2: "a", 3: "f"}


def test_lost_pod_of_a_gang_of_two_kinds_moves_to_a_server_of_its_kind():
    stand = of_kinds(a="slow", b="fast", c="slow", d="fast", e="fast", f="slow")
    stand.submit(num_pods=4, placement=KINDS)
    stand.settle()
    stand.taint("c")
    stand.lose("g", 3)
    stand.settle(4)
    assert stand.bound() == {0: "b", 1: "d", 2: "a", 3: "f"}
