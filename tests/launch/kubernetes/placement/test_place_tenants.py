"""Two namespaces with a placer each on the same servers: with one ledger no server is promised twice."""

from datetime import timedelta

import pytest
from tests.launch.kubernetes.cluster_stand import LEDGER, Stand, demand_no_server_twice, watch_over

pytestmark = pytest.mark.row("C6")


class Tenants:
    """`a` and `b` on the servers a and b, one core each; the ledger lies with the gangs of `a`."""

    def __init__(self, *, ledger="gangs"):
        self.a = Stand({"a": 1, "b": 1})
        self.b = Stand({}, namespace="gangs-b", server=self.a.server, ledger=ledger)
        self.both = (self.a, self.b)
        for each in self.both:
            each.now = self.a.now
            each.server.now = lambda: self.a.now

    def turn(self, *, seconds=1):
        """Both placers read and write before anything else moves; then pods are bound in turn, the worst way."""
        for each in self.both:
            each.now += timedelta(seconds=seconds)
            each.placer.step(each.now)
        for each in self.both:
            each.jobs.step()
        waiting = [
            (rank if each is self.a else 1 - rank, number, each, pod)
            for number, each in enumerate(self.both)
            for name in self.gangs(each)
            for rank, pod in each.pods(name).items()
        ]
        for _, _, each, pod in sorted(waiting, key=lambda found: found[:2]):
            if "deletionTimestamp" in pod["metadata"]:
                each._gone(pod)
            elif not pod["spec"].get("nodeName") and not pod["spec"].get("schedulingGates"):
                each._schedule(pod)
        for each in self.both:
            each.jobs.step()

    def gangs(self, stand):
        path = f"/apis/batch/v1/namespaces/{stand.namespace}/jobs"
        return [job["metadata"]["name"] for job in stand.api.items(path)[0]]

    def settle(self, turns=6):
        for _ in range(turns):
            self.turn()


def free_servers_for_which_both_wait(tenants):
    tenants.a.submit("old", 2)
    tenants.settle()
    tenants.a.submit("g", 2)
    tenants.b.submit("h", 2)
    tenants.settle()
    assert len(tenants.a.bound("old")) == 2
    tenants.a.end("old")


def test_of_two_tenants_with_one_ledger_one_gets_the_servers_and_the_other_waits():
    tenants = Tenants()
    for each in tenants.both:
        watch_over(each)
    free_servers_for_which_both_wait(tenants)
    tenants.settle()
    demand_no_server_twice(tenants.a)
    assert (tenants.a.bound("g"), tenants.b.pods("h")) == ({0: "a", 1: "b"}, {})
    assert tenants.b.waits("h").endswith("0 fit now on 2 servers; 2 servers reserved for other namespaces")
    tenants.a.end("g")
    tenants.settle()
    assert tenants.b.bound("h") == {0: "a", 1: "b"}


def test_with_a_ledger_each_two_tenants_take_half_each_give_it_back_and_try_again_one_by_one():
    tenants = Tenants(ledger=None)
    free_servers_for_which_both_wait(tenants)
    tenants.settle(10)
    assert (len(tenants.a.bound("g")), len(tenants.b.bound("h"))) == (1, 1)
    tenants.settle(62)
    assert (tenants.a.pods("g"), tenants.b.pods("h")) == ({}, {})
    assert "Insufficient cpu" in tenants.a.waits("g")
    tenants.turn(seconds=590)
    while not tenants.a.pods("g") | tenants.b.pods("h"):
        tenants.turn()
    tenants.settle()
    assert (tenants.a.bound("g"), tenants.b.bound("h")) in [({0: "a", 1: "b"}, {}), ({}, {0: "a", 1: "b"})]


@pytest.mark.parametrize("placed", ["promised", "whole"])
def test_a_promise_of_another_namespace_whose_gang_is_gone_holds_no_server(placed):
    """Its placer is away, or has nothing more to do there."""
    tenants = Tenants()
    tenants.b.submit("h", 2)
    tenants.settle(1 if placed == "promised" else 6)
    tenants.b.api.delete("/apis/batch/v1/namespaces/gangs-b/jobs/h", propagation="Foreground")
    tenants.b.move()
    tenants.a.submit("g", 2)
    tenants.both = (tenants.a,)
    tenants.settle(3)
    assert len(tenants.a.pods("g")) == (0 if placed == "promised" else 2)
    tenants.turn(seconds=121)
    tenants.settle()
    assert tenants.a.bound("g") == {0: "a", 1: "b"}
    assert sorted(tenants.a.api.get(LEDGER)["data"]) == ["g", "gangs-b.h"]


def test_a_lost_pods_server_is_kept_from_other_namespaces_until_it_is_back():
    tenants = Tenants()
    tenants.a.submit("g", 2)
    tenants.settle()
    tenants.b.submit("h", 1)
    tenants.a.lose("g", 1)
    for _ in range(3):
        tenants.b.now += timedelta(seconds=200)
        tenants.b.placer.step(tenants.b.now)
        tenants.b.move()
    assert tenants.b.pods("h") == {}
    tenants.settle()
    assert tenants.a.bound("g") == {0: "a", 1: "b"}
