"""Where a gang is, out of its pods and of what was promised to it."""

import pytest
from tests.launch.kubernetes.gangs import CPU

from gangline.launch.kubernetes.state.gang_state import gang_state, status_of
from gangline.launch.kubernetes.state.roots import Root
from gangline.spec.gang.pod_output import to_message
from gangline.spec.gang.podset import PlacedServer
from gangline.spec.gang.status import GangEnd


def pod(rank, server=None, **metadata):
    about = {
        "name": f"g-{rank}",
        "uid": f"uid-{rank}",
        "annotations": {"batch.kubernetes.io/job-completion-index": str(rank)},
        **metadata,
    }
    return {"metadata": about, "spec": {"nodeName": server} if server else {}, "status": {"phase": "Pending"}}


LEAVING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("pods", "given", "servers"),
    [
        ([pod(2, "c"), pod(0, "a"), pod(1, "b")], (), ("a", "b", "c")),
        ([pod(2, "c"), pod(0, "a"), pod(1)], (), ("a", "c")),
        ([pod(2, "c"), pod(0), pod(1)], ("x", "y", "z"), ("x", "y", "c")),
        ([pod(0, "new"), pod(0, "old", **LEAVING), pod(1, "b")], (), ("new", "b")),
        ([pod(0), pod(0, "old", **LEAVING), pod(1, "b")], (), ("old", "b")),
        ([], ("x", "y", "z"), ("x", "y", "z")),
    ],
    ids=["in node-rank order", "not yet placed", "promised", "replaced", "being replaced", "no pods yet"],
)
def test_servers_are_reported_by_node_rank(pods, given, servers):
    assert status_of("starting", pods, CPU, placed=[PlacedServer(name=name) for name in given]).servers == servers


def with_phase(reported, *conditions):
    status = {"phase": reported, "conditions": [{"type": each, "status": "True"} for each in conditions]}
    return pod(0, "a") | {"status": status}


def exited(code):
    ended = with_phase("Failed")
    ended["status"]["containerStatuses"] = [{"name": "node", "state": {"terminated": {"exitCode": code}}}]
    return ended


@pytest.mark.parametrize(
    ("first", "state"),
    [
        (with_phase("Running", "Ready"), "running"),
        (with_phase("Running"), "starting"),
        (with_phase("Failed"), "stopping"),
        (with_phase("Failed", "DisruptionTarget"), "starting"),
        (exited(143), "starting"),
        (exited(137), "stopping"),
    ],
    ids=["ready", "not ready", "failed", "taken by the platform", "asked to leave", "killed"],
)
def test_pod_that_failed_stops_a_gang_whose_root_says_nothing_yet(first, state):
    root = Root("/apis/trainer.kubeflow.org/v1alpha1/namespaces/n/trainjobs/g", {"metadata": {}, "spec": {}})
    second = with_phase("Running", "Ready")
    assert gang_state(root, [first, second], 2) == state


def test_pods_that_ended_report_how_often_the_gang_began_again():
    end = GangEnd(exit_code=34, retry="same", reason="a peer is gone", generation=2, restarts=1)
    ended = {"name": "node", "state": {"terminated": {"exitCode": 34, "message": to_message(end)}}}
    lost = {**pod(1, "b"), "status": {"phase": "Failed", "containerStatuses": [ended]}}
    status = status_of("starting", [pod(0, "a"), lost], CPU)
    assert (status.generation, status.restarts) == (2, 1)


def test_gang_that_waits_again_is_nowhere():
    assert status_of("waiting", [], CPU, placed=[PlacedServer(name="x")]).servers == ()


def test_server_is_named_by_the_host_name_that_its_pod_selects():
    bound = pod(0, "node-object-1")
    bound["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "a"}
    assert status_of("running", [bound, pod(1, "b")], CPU).servers == ("a", "b")
