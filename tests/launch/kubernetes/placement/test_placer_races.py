"""Two placers at the worst moments: the one is slow between reading and writing, the other works meanwhile."""

from contextlib import contextmanager

import pytest
from tests.cluster.fake.api import FakeApi
from tests.launch.kubernetes.cluster_stand import LEDGER, Stand, demand_no_server_twice

from gangline.launch.kubernetes.placement.gang_pods import open_gates
from gangline.launch.kubernetes.placement.placer import Placer


@pytest.fixture
def stand():
    made = Stand({"a": 1, "b": 1})
    made.other = Placer(FakeApi(server=made.server), holder="two")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "gangline-ledger"}}
    made.api.create("/api/v1/namespaces/gangs/configmaps", body)
    return made


@contextmanager
def meanwhile(stand, method, path, what):
    """Do `what` just before the first `method` that the stand's own placer sends to a path with `path` in it."""
    done = []

    def first_that(request, proceed):
        if request.method == method and path in request.path and not done:
            done.append(request.path)
            what()
        return proceed()

    stand.placing.hooks.append(first_that)
    yield
    stand.placing.hooks.pop()
    assert done, f"no {method} of {path}"


@pytest.mark.row("C6")
def test_a_promise_made_on_an_old_ledger_is_refused(stand):
    def another_gang_starts():
        stand.submit("h", 2)
        for _ in range(3):
            stand.other.step(stand.now)
            stand.move()

    stand.submit("g", 2)
    path = "/apis/batch/v1/namespaces/gangs/jobs/g"
    stand.api.patch(path, {"metadata": {"annotations": {"gangline/queued": "2099-01-01T00:00:00Z"}}})
    with meanwhile(stand, "PUT", LEDGER, another_gang_starts):
        stand.turn()
    demand_no_server_twice(stand)
    assert (len(stand.bound("h")), stand.pods("g")) == (2, {})


@pytest.mark.row("C6")
def test_a_gate_that_opens_late_opens_onto_no_other_gangs_server(stand):
    def it_is_cancelled_and_another_waits():
        path = "/apis/batch/v1/namespaces/gangs/jobs/g"
        stand.api.patch(path, {"metadata": {"annotations": {"gangline/cancelled": "enough"}}})
        stand.submit("h", 2)
        stand.other.step(stand.now)

    stand.submit("g", 2)
    stand.turn()
    with meanwhile(stand, "PATCH", "/pods/", it_is_cancelled_and_another_waits):
        stand.placer.step(stand.now)
    stand.schedule()
    assert len(stand.bound("g")) == 2
    demand_no_server_twice(stand)


def test_the_server_that_a_replacement_left_is_kept_until_its_gate_is_open(stand):
    stand.submit("g", 1)
    stand.settle()
    stand.taint("a", "worn")
    stand.lose("g", 0)
    gated = stand.pods("g")[0]
    stand.submit("h", 1, tolerate=("worn",))

    def a_slower_placer_sends_it_back():
        name = gated["metadata"]["name"]
        assert open_gates(stand.api, {name: "a"}, {name: gated}, nodes={}, at=stand.now.isoformat()) == 1

    with meanwhile(stand, "PATCH", "/pods/", a_slower_placer_sends_it_back):
        stand.placer.step(stand.now)
    stand.schedule()
    demand_no_server_twice(stand)
    stand.settle()
    demand_no_server_twice(stand)
    assert (stand.bound("g"), stand.bound("h"), stand.reservations()) == ({0: "a"}, {0: "b"}, {"g": ["a"], "h": ["b"]})
