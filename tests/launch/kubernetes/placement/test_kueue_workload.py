"""Workloads in the forms of Kueue 0.19.2: the servers, flavors and evictions that they tell of."""

import pytest
from tests.launch.kubernetes.placement.recorded import RecordedGang

from gangline.launch.kubernetes.placement.kueue_admission import (
    Eviction,
    admission,
    assigned_flavors,
    assigned_servers,
    latest_eviction,
)

PREEMPTED = "Preempted to accommodate a workload (UID: "


def assigned(name):
    (podset,) = RecordedGang(name).workload["status"]["admission"]["podSetAssignments"]
    return podset["topologyAssignment"]


@pytest.mark.parametrize("name", ["admitted", "admitted-v1beta1"])
def test_servers_of_either_version_are_read_in_the_order_of_their_domains(name):
    gang = RecordedGang(name)
    assert assigned_servers(gang.workload) == ("gangline-1", "gangline-3", "gangline-2", "gangline-4")
    assert assigned_flavors(gang.workload) == ["first"]


def test_a_server_of_two_pods_is_named_twice():
    assert assigned("two-pods-a-server")["slices"][0]["podCounts"] == {"universal": 2}
    found = assigned_servers(RecordedGang("two-pods-a-server").workload)
    assert found == ("gangline-1", "gangline-1", "gangline-3", "gangline-3")


def test_counts_and_names_of_each_domain_are_read():
    gang = RecordedGang("admitted")
    (part,) = gang.workload["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"]["slices"]
    part |= {"domainCount": 2, "podCounts": {"individual": [3, 1]}}
    part["valuesPerLevel"] = [{"individual": {"roots": ["a", "b"], "suffix": ".example"}}]
    assert assigned_servers(gang.workload) == ("a.example", "a.example", "a.example", "b.example")


def test_what_names_no_servers_is_not_a_placement():
    assert assigned_servers(RecordedGang("evicted").workload) == ()
    assert assigned_servers({"metadata": {"name": "w"}}) == ()
    racks = RecordedGang("admitted").workload
    racks["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"]["levels"] = ["rack"]
    assert assigned_servers(racks) == ()


def test_two_admissions_of_one_gang_differ():
    first, again = (admission(RecordedGang(name).workload) for name in ("admitted", "admitted-again"))
    assert first is not None
    assert first != again
    assert admission(RecordedGang("evicted").workload) is None


def test_eviction_is_the_same_while_it_lasts_and_after_the_gang_was_admitted_again():
    found = latest_eviction(RecordedGang("evicted").workload)
    assert found is not None
    assert found.times == 1
    assert found.message.startswith(PREEMPTED)
    again = RecordedGang("admitted-again").workload
    assert latest_eviction(again) == Eviction(times=1, message=latest_eviction(again).message)
    assert latest_eviction(again).message.startswith(PREEMPTED)
    assert latest_eviction(RecordedGang("admitted").workload) is None
