"""Gangs that Volcano does not start: the cases beside the recorded snapshots."""

import copy
from dataclasses import replace

import pytest
from tests.launch.kubernetes.waiting.seen import SNAPSHOTS, read, snapshot

from gangline.launch.kubernetes.waiting import explain

pytestmark = pytest.mark.row("V11")


def recorded(name):
    return copy.deepcopy(read(SNAPSHOTS / f"volcano-1.15.1-{name}.json"))


def explained(kept, **changed):
    return explain(replace(snapshot(kept), **changed))


def event(kept, message, at):
    about = {"kind": "PodGroup", "name": kept["pod_group"]["metadata"]["name"]}
    return {
        "involvedObject": about,
        "reason": "Unschedulable",
        "type": "Normal",
        "message": message,
        "lastTimestamp": at,
    }


def test_queue_that_is_closed_is_graver_than_what_was_short_before():
    kept = recorded("quota")
    kept["volcano_queue"]["status"]["state"] = "Closed"
    assert explained(kept).kind == "queue-stopped"


def test_gang_that_was_let_in_since_does_not_wait_for_the_quota_of_before():
    kept = recorded("quota")
    kept["pod_group"]["status"]["phase"] = "Inqueue"
    assert explained(kept).sentence == "Volcano has no place for 3 pods and does not say why"


def test_last_cause_counts():
    kept = recorded("quota")
    kept["events"] += [event(kept, "resource in cluster is overused: overused cpu", kept["now"])]
    assert (
        explained(kept).sentence
        == "Volcano's plugin overcommit lets no more in: 3 pods request 3 cpu; other holds 2 cpu"
    )


def test_causes_that_are_not_known_are_shown_as_they_are():
    kept = recorded("quota")
    kept["events"] = [event(kept, "resource quota insufficient in namespace gangs.", kept["now"])]
    assert (
        explained(kept).sentence == "queue rack-four has not let it in: resource quota insufficient in namespace gangs"
    )
    kept["events"] = []
    assert explained(kept).sentence == "queue rack-four has not let it in, and Volcano does not say why"


def test_event_of_another_object_of_that_name_is_none():
    kept = recorded("quota")
    for each in kept["events"]:
        each["involvedObject"]["kind"] = "Job"
    assert explained(kept).sentence.endswith("Volcano does not say why")


def test_quota_that_no_capability_states_may_suffice_some_day():
    kept = recorded("quota-never")
    del kept["volcano_queue"]["spec"]["capability"]
    found = explained(kept)
    assert (found.kind, found.sentence) == ("queue", "queue rack-small has no room: 3 pods request 3 cpu")
    kept["volcano_queue"]["spec"]["capability"] = {"cpu": "many"}
    assert explained(kept).sentence == found.sentence


def test_queue_that_this_account_may_not_read_is_not_called_gone_or_open():
    kept = recorded("queue-gone")
    found = explained(kept, volcano_queue=None, denied=("volcano_queue",))
    assert found.final_after_seconds is None
    assert found.sentence == (
        "Volcano has not processed it yet, which takes seconds if its scheduler runs; whether there is a"
        " queue rack-c, and open, this account may not read (gangline-reader)"
    )


def test_group_that_this_account_may_not_read_is_named_where_pods_do_not_say_why():
    for name, sentence in (
        ("quota", "Volcano does not start 3 pods; why is in the PodGroup, which this account may not read"),
        ("one-pod-short", recorded("one-pod-short")["expect"]["sentence"]),
    ):
        found = explained(recorded(name), pod_group=None, volcano_queue=None, denied=("pod_group",))
        assert (found.kind, found.sentence) == ("unschedulable", sentence)


def test_group_that_was_not_asked_for_is_not_called_unreadable():
    found = explained(recorded("quota"), pod_group=None, volcano_queue=None, events=[])
    assert found.sentence.startswith("no server for 3 pods: pod group is not ready")


def test_newest_condition_counts_and_of_two_of_one_second_that_it_does_not_start():
    kept = recorded("started")
    del kept["pods"][0]["spec"]["nodeName"]
    assert explained(kept).kind != "unschedulable"
    for each in kept["pod_group"]["status"]["conditions"]:
        each["lastTransitionTime"] = kept["now"]
    assert explained(kept).sentence == "Volcano has no place for 1 pod and does not say why"


def test_verdict_that_the_group_alone_bears_is_read_there():
    kept = recorded("one-pod-short")
    for pod in kept["pods"]:
        for each in pod["status"]["conditions"]:
            each["message"] = "pod group is not ready" if each["reason"] == "Unschedulable" else each["message"]
    assert explained(kept).sentence == recorded("one-pod-short")["expect"]["sentence"]


def test_gang_whose_pods_have_servers_does_not_wait_for_volcano():
    kept = recorded("started")
    kept["volcano_queue"]["status"]["state"] = "Closed"
    assert explained(kept).kind == "joining"


def test_group_without_anything_is_borne():
    kept = recorded("quota")
    kept["pod_group"] = {"metadata": {"name": "now"}, "spec": None, "status": None}
    kept["volcano_queue"] = {"metadata": {"name": "x"}, "spec": None, "status": None}
    assert explained(kept).kind == "queue-inactive"
    kept["pod_group"] = {}
    assert explained(kept).kind == "unschedulable"
