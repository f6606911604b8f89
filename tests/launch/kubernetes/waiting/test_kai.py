"""Gangs that KAI does not start: the cases beside the recorded snapshots."""

import copy
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.launch.kubernetes.waiting.seen import SNAPSHOTS, read, snapshot

from gangline.launch.kubernetes.waiting import explain

pytestmark = pytest.mark.row("V11")
STALE = "; if that lasts 60 s, its default, KAI stops the other pods, too"


def recorded(name):
    return copy.deepcopy(read(SNAPSHOTS / f"kai-0.13.0-{name}.json"))


def saying(words, *, name="limit", **changed):
    """The waiting reason of this snapshot if KAI writes these words into every pod."""
    kept = recorded(name)
    for pod in kept["pods"]:
        for each in pod["status"]["conditions"]:
            each["message"] = words
    return explain(replace(snapshot(kept), **changed))


@pytest.mark.parametrize(
    ("what", "asked", "expected"),
    [
        ("GPUs. Limit is 8 GPUs, currently 8 GPUs", "4 GPUs", "8 of 8 GPUs are used, 3 pods request 4 GPUs"),
        ("memory. Limit is 2 GB, currently 1.5 GB", "1 GB", "1.5 of 2 GB memory are used, 3 pods request 1 GB memory"),
    ],
)
def test_limit_of_each_resource_has_its_unit(what, asked, expected):
    words = f"OverLimit: all quota has reached the allowable limit of {what} allocated and workload requested {asked}."
    assert saying(words).sentence == f"queue all has no room: {expected}"


def test_gang_that_may_not_be_preempted_waits_for_quota_that_suffices():
    words = (
        "NonPreemptibleOverQuota: Non-preemptible workload is over quota. Workload requested 8 GPUs, but nlp quota is"
        " 16 GPUs, while 12 GPUs are already allocated for non-preemptible pods. Use a preemptible workload.."
    )
    found = saying(words)
    assert (found.kind, found.final_after_seconds) == ("queue", None)
    assert found.sentence == (
        "queue nlp has no room: 12 of 16 GPUs of the quota for gangs that KAI may not preempt are used, 3 pods request"
        " 8 GPUs"
    )


def test_quota_without_an_end_is_never_exceeded():
    words = (
        "all quota has reached the allowable limit of GPUs. Limit is Unlimited GPUs, currently 8 GPUs allocated and"
        " workload requested 4 GPUs"
    )
    assert saying(words).kind == "queue"


def test_gang_that_ran_is_not_ended_by_a_queue_that_is_gone():
    running, new = recorded("lost-pod-queue-gone"), recorded("queue-gone")
    assert explain(snapshot(running)).final_after_seconds is None
    assert explain(snapshot(new)).final_after_seconds == 30.0


def test_that_running_pods_will_be_stopped_is_said_only_if_there_are_some():
    kept = recorded("lost-pod")
    assert explain(snapshot(kept)).sentence.endswith(STALE)
    for pod in kept["pods"]:
        if pod["status"]["phase"] == "Running":
            pod["status"]["phase"] = "Failed"
    assert not explain(snapshot(kept)).sentence.endswith(STALE)


def test_room_that_was_made_long_ago_is_not_being_made():
    kept = recorded("preempting")
    later = snapshot(kept)
    assert explain(replace(later, now=later.now + timedelta(seconds=30))).kind != "preempting"


def test_group_with_the_most_room_is_named():
    words = "\n".join(f"node-group leaf-{each} can allocate only {each} of 9 required pods." for each in (2, 8, 7))
    assert saying(words).sentence == "no group of servers takes 9 pods: 3 groups have less room, leaf-8 for 8"
    one = saying("node-group leaf-1 can allocate only 1 of 2 required pods.")
    assert one.sentence == "no group of servers takes 2 pods: 1 group has less room, leaf-1 for 1"


def test_words_about_the_gang_are_found_whichever_pod_bears_them():
    kept = recorded("one-pod-short")
    kept["pods"].reverse()
    assert explain(snapshot(kept)).sentence == kept["expect"]["sentence"]
    kept["pods"] = kept["pods"][:1]
    assert "3 lack cpu" in explain(snapshot(kept)).sentence


@pytest.mark.parametrize("expected", ["KAI has not processed it yet", "1 of 2 pods are created"])
def test_scheduler_is_missed_only_when_all_pods_are_there(expected):
    kept = recorded("no-scheduler")
    if expected.startswith("1 of 2"):
        del kept["pods"][0]
    assert explain(snapshot(kept)).sentence.startswith(expected)


def test_scheduler_is_not_missed_within_seconds():
    kept = recorded("no-scheduler")
    for pod in kept["pods"]:
        pod["metadata"]["creationTimestamp"] = kept["now"]
    assert explain(snapshot(kept)).sentence == "0 of 2 pods have started"


def test_gangs_of_others_do_not_learn_of_kai():
    kept = recorded("no-scheduler")
    for pod in kept["pods"]:
        pod["spec"]["schedulerName"] = "default-scheduler"
    assert "KAI" not in explain(snapshot(kept)).sentence
