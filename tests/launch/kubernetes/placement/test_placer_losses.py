"""The placer when pods or the ledger are lost, a server refuses, or somebody else wrote into its objects."""

import json
from datetime import timedelta

import pytest
from tests.launch.kubernetes.cluster_stand import LEDGER, Stand, watch_over

from gangline.errors import IntegrityError
from gangline.launch.kubernetes.client.transport import ApiResponse


@pytest.mark.row("K6")
def test_a_server_that_refuses_frees_all_others_and_is_remembered(stand):
    stand.refusing["b"] = "node(s) had a volume conflict"
    stand.submit(num_pods=2)
    stand.settle(4)
    assert stand.bound() == {0: "a"}
    stand.turn(seconds=61)
    assert stand.root()["spec"]["suspend"]
    stand.turn()
    assert (stand.reservations(), stand.used()) == ({}, {})
    assert stand.waits().startswith(
        "server b does not take its pod: node(s) had a volume conflict; its servers are released"
    )
    stand.settle(3)
    assert stand.pods() == {}, "backs off"
    stand.settle(6, seconds=5)
    assert stand.bound() == {0: "a", 1: "c"}


@pytest.mark.row("K6")
def test_pods_that_are_never_made_free_their_servers(stand):
    stand.submit(num_pods=2)
    stand.placer.step(stand.now)
    stand.turn(seconds=61, placer=stand.placer)
    assert stand.root()["spec"]["suspend"]
    assert "only 0 of 2 pods were made in 60 s" in stand.waits()
    stand.turn()
    assert stand.reservations() == {}


@pytest.mark.row("K6")
def test_each_failed_try_backs_off_longer(stand):
    stand.refusing = dict.fromkeys("abcd", "no")
    stand.submit(num_pods=1)
    waited = []
    for _ in range(200):
        if any(each.kind == "refused" for each in stand.turn(seconds=20)):
            note = json.loads(stand.root()["metadata"]["annotations"]["gangline/refused"])
            waited.append(note["times"])
    assert waited[:4] == [1, 2, 3, 4]


def test_the_deadline_counts_again_for_a_gang_that_was_suspended_again(stand):
    stand.refusing = dict.fromkeys("abcd", "no")
    stand.submit(num_pods=2, deadline_seconds=60)
    stand.settle(4)
    stand.turn(seconds=61)
    assert stand.root()["spec"]["suspend"]
    assert stand.root()["status"]["startTime"]
    stand.turn(seconds=2 * stand.root()["spec"]["activeDeadlineSeconds"])
    stand.refusing = {}
    stand.settle(6)
    assert len(stand.bound()) == 2
    conditions = [each["type"] for each in stand.root()["status"]["conditions"] if each["status"] == "True"]
    assert conditions == []


def test_a_lost_pod_comes_back_to_its_server(stand):
    stand.submit(num_pods=3)
    stand.settle()
    stand.lose("g", 1)
    stand.settle(3)
    assert stand.bound() == {0: "a", 1: "b", 2: "c"}


def test_a_pod_of_a_lost_server_goes_to_the_nearest_and_no_other_moves():
    near = {
        name: {"gangline/fabric-group": group} for name, group in zip("abcd", ["g1", "g2", "g1", "g2"], strict=True)
    }
    stand = Stand(dict.fromkeys("abcd", 1), labels=near)
    watch_over(stand)
    stand.submit(num_pods=1)
    stand.settle()
    assert stand.bound() == {0: "a"}
    stand.taint("a")
    stand.lose("g", 0)
    done = stand.settle(3)
    assert stand.bound() == {0: "c"}
    assert "replaced" in [each.kind for each in done]
    assert stand.root()["metadata"]["annotations"]["gangline/servers"] == "c"


def test_a_gang_that_ran_unseen_is_not_stopped_for_a_lost_pod(stand):
    stand.submit(num_pods=3)
    stand.settle(2)
    assert len(stand.bound()) == 3
    stand.now += timedelta(seconds=300)
    stand.taint("b")
    stand.refusing["d"] = "no"
    stand.lose("g", 1)
    done = stand.settle(70, seconds=2)
    assert stand.bound() == {0: "a", 2: "c"}
    assert "refused" not in [each.kind for each in done]
    del stand.refusing["d"]
    stand.server.store.changed.acquire()
    stand.server.store.version += 1
    stand.server.store.changed.release()
    stand.settle(2)
    assert stand.bound() == {0: "a", 1: "d", 2: "c"}


def test_of_two_lost_pods_none_takes_the_others_server():
    stand = Stand(dict.fromkeys("abcd", 1))
    watch_over(stand)
    stand.submit(num_pods=3)
    stand.settle()
    stand.taint("b")
    stand.lose("g", 1)
    stand.lose("g", 2)
    stand.settle(4)
    assert stand.bound() == {0: "a", 1: "d", 2: "c"}


def test_a_lost_ledger_stops_no_gang_that_runs(stand):
    stand.submit(num_pods=4)
    stand.settle()
    stand.taint("b")
    stand.lose("g", 1)
    stand.api.delete(LEDGER)
    stand.settle(4)
    assert stand.bound() == {0: "a", 2: "c", 3: "d"}
    assert "no server has room for the others" in stand.waits()
    stand.taint("b", None)
    stand.settle(4)
    assert stand.bound() == dict(enumerate("abcd"))


def test_the_server_of_a_lost_pod_is_kept_for_its_replacement(stand):
    stand.submit("first", 4)
    stand.settle()
    stand.submit("second", 1)
    stand.lose("first", 2)
    stand.settle()
    assert (stand.bound("first")[2], stand.pods("second")) == ("c", {})


def test_a_replacement_without_a_server_says_so_and_no_other_rank_stops(stand):
    stand.submit(num_pods=4)
    stand.settle()
    stand.taint("b")
    stand.lose("g", 1)
    stand.settle(80, seconds=2)
    assert stand.bound() == {0: "a", 2: "c", 3: "d"}
    assert stand.waits() == "the pod of node rank 1 was lost, and no server has room for its replacement"
    stand.add("e", 1)
    stand.settle(2)
    assert stand.bound()[1] == "e"


def test_a_lost_ledger_is_written_again_from_the_gangs_that_run(stand):
    stand.submit("runs", 2)
    stand.settle()
    stand.api.delete(LEDGER)
    stand.submit("next", 2)
    stand.settle()
    assert stand.reservations() == {"runs": ["a", "b"], "next": ["c", "d"]}


def test_a_ledger_lost_between_promise_and_pods_gives_nothing_twice(stand):
    stand.submit("first", 3)
    stand.placer.step(stand.now)
    stand.api.delete(LEDGER)
    stand.submit("next", 3)
    stand.settle()
    assert (len(stand.bound("first")), stand.pods("next")) == (3, {})


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"servers": []}', '{"uid": "x", "servers": [], "need": {}, "since": ""}',
     '{"uid": "x", "servers": ["a"], "need": {"cpu": -1}, "since": ""}', "[" * 100_000],
    ids=["empty", "list", "fields missing", "no servers", "below zero", "deep"],
)  # fmt: skip
def test_a_damaged_ledger_is_refused_and_says_what_to_do(text):
    stand = Stand({"a": 1})
    stand.submit(num_pods=1)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "gangline-ledger"}, "data": {"g": text}}
    stand.api.create("/api/v1/namespaces/gangs/configmaps", body)
    with pytest.raises(IntegrityError, match="kubectl delete configmap gangline-ledger -n gangs"):
        stand.turn()
    assert stand.root()["spec"]["suspend"]
    stand.api.delete(LEDGER)
    stand.settle()
    assert stand.bound() == {0: "a"}


def test_a_gang_unsuspended_by_hand_is_suspended_until_it_has_servers(stand):
    stand.submit(num_pods=9)
    stand.api.patch("/apis/batch/v1/namespaces/gangs/jobs/g", {"spec": {"suspend": False}})
    stand.settle()
    assert stand.root()["spec"]["suspend"]
    assert stand.used() == {}


def test_a_root_that_is_damaged_waits_alone(stand):
    stand.submit("bad", 2)
    path = "/apis/batch/v1/namespaces/gangs/jobs/bad"
    stand.api.patch(path, {"metadata": {"annotations": {"gangline/spec": "{"}}})
    stand.submit("good", 2)
    stand.settle()
    assert len(stand.bound("good")) == 2
    assert "PodSet" in stand.waits("bad")


def test_what_the_server_refuses_to_one_gang_stops_no_other(stand):
    def refuses(request, proceed):
        if request.method == "PATCH" and "/pods/unlucky" in request.path:
            return ApiResponse(status=400, body={"message": "a webhook says no"})
        return proceed()

    stand.submit("unlucky", 1)
    stand.placing.hooks.append(refuses)
    stand.turn()
    stand.submit("lucky", 2)
    stand.settle()
    assert len(stand.bound("lucky")) == 2
    assert "a webhook says no" in stand.waits("unlucky")


@pytest.mark.parametrize(("mark", "text"), [
    ("gangline/queued", "whenever"),
    ("gangline/refused", '{"times": 1, "at": "x", "until": "y", "servers": {}}'),
    ("gangline/placed", "2026-13-45"),
    ("gangline/servers", ",,,"),
])  # fmt: skip
def test_marks_that_somebody_else_wrote_stop_no_one(stand, mark, text):
    stand.submit("odd", 2)
    stand.api.patch("/apis/batch/v1/namespaces/gangs/jobs/odd", {"metadata": {"annotations": {mark: text}}})
    stand.settle()
    stand.submit("good", 2)
    stand.settle()
    assert len(stand.bound("odd")) == len(stand.bound("good")) == 2


def test_a_pod_that_only_bears_the_label_is_none_of_the_gang(stand):
    stand.submit("g", 2)
    stand.turn()
    forged = {"name": "forged", "labels": {"gangline/gang": "g"},
              "annotations": {"batch.kubernetes.io/job-completion-index": "7"}}  # fmt: skip
    container = {"name": "node", "image": "x"}
    spec = {"containers": [container], "schedulingGates": [{"name": "gangline/placement"}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": forged, "spec": spec}
    stand.api.create("/api/v1/namespaces/gangs/pods", body)
    stand.settle()
    assert stand.bound() == {0: "a", 1: "b"}
    assert stand.pods()[7]["spec"]["schedulingGates"]
