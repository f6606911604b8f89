"""The lease, and the loop that works under it."""

import threading
from datetime import UTC, datetime, timedelta

import pytest
from tests.cluster.fake.api import FakeApi
from tests.launch.kubernetes.cluster_stand import Stand

from gangline.launch.kubernetes.client.api import ApiUnavailable
from gangline.launch.kubernetes.cluster.facts import PLACER_LEASE
from gangline.launch.kubernetes.placement import placer
from gangline.launch.kubernetes.placement.placer import hold_lease, lease_path, run_placer

NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def api():
    return FakeApi()


def hold(api, holder, seconds=0):
    return hold_lease(api, holder=holder, now=NOW + timedelta(seconds=seconds))


def test_one_holds_it_and_the_others_stand_by(api):
    assert [hold(api, "one"), hold(api, "two"), hold(api, "one", 5)] == [True, False, True]


def test_an_expired_lease_changes_hands_and_counts_it(api):
    hold(api, "one")
    assert [hold(api, "two", 14), hold(api, "two", 16), hold(api, "one", 17)] == [False, True, False]
    assert api.get(f"{lease_path(api.namespace)}/{PLACER_LEASE}")["spec"]["leaseTransitions"] == 1


def test_a_lease_without_a_holder_is_taken(api):
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": PLACER_LEASE}}
    api.create(lease_path(api.namespace), body)
    assert hold(api, "one")


def test_it_is_renewed_a_few_times_a_duration_only(api):
    for second in range(15):
        assert hold(api, "one", second)
    assert api.calls["update", "leases.coordination.k8s.io"] <= 3


def test_the_loop_places_until_it_is_stopped_and_outlasts_a_cluster_that_is_away(monkeypatch):
    monkeypatch.setattr(placer, "TROUBLE_SECONDS", 0.01)
    monkeypatch.setattr(placer, "IDLE_SECONDS", 0.01)
    stand, stop, turns, passes = Stand({"a": 1}), threading.Event(), [], []
    stand.submit("g", 1)

    def hook(request, proceed):
        turns.append(request.path)
        if len(turns) == 2:
            raise ApiUnavailable("no answer")
        stand.move()
        if stand.bound("g"):
            stop.set()
        return proceed()

    stand.placing.hooks.append(hook)
    run_placer(stand.placing, holder="one", stop=stop, passed=lambda: passes.append(len(turns)))
    assert stand.bound("g") == {0: "a"}
    assert passes[0] == 2, "a pass that met a cluster that is away counts, too"
