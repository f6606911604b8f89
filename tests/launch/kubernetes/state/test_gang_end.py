"""How gangs end: the first culprit speaks, whatever its pods left behind."""

import json
from pathlib import Path

import pytest

from gangline.launch.kubernetes.state.gang_state import combine_ends, gang_end, pod_end
from gangline.launch.kubernetes.state.roots import Root
from gangline.spec.gang.pod_output import to_message
from gangline.spec.gang.status import GangEnd

SNAPSHOTS = Path(__file__).parents[1] / "waiting" / "snapshots"


def root(*conditions: str, reason: str = "", **spec) -> Root:
    found = [{"type": each, "status": "True", "reason": reason, "message": "so it was"} for each in conditions]
    return Root(
        "/apis/batch/v1/namespaces/gangs/jobs/run-1", {"metadata": {}, "spec": spec, "status": {"conditions": found}}
    )


def pod(node: int, code: int | None, *, at: str = "12:00:05", end: GangEnd | None = None, uid: str = "", **more):
    state = {"terminated": {"exitCode": code, "finishedAt": f"2026-11-21T{at}Z", "reason": more.get("reason", "Error"),
                            "message": to_message(end) if end else more.get("text", "")}}  # fmt: skip
    metadata = {"name": f"run-1-{node}-x", "uid": uid or f"u{node}",
                "annotations": {"batch.kubernetes.io/job-completion-index": str(node)}}  # fmt: skip
    if more.get("deleted"):
        metadata["deletionTimestamp"] = "2026-11-21T12:00:06Z"
    conditions = [{"type": "DisruptionTarget", "status": "True"}] if more.get("disrupted") else []
    status = {"phase": "Failed" if code else "Succeeded", "conditions": conditions,
              "containerStatuses": [{"name": "node", "state": state if code is not None else {}}]}  # fmt: skip
    status |= {key: more[key] for key in ("message",) if key in more}
    if "status_reason" in more:
        status["reason"] = more["status_reason"]
    return {"metadata": metadata, "spec": {"nodeName": f"server-{node}"}, "status": status}


def said(code: int, retry: str, *, time: str = "", reason: str = "rank 3 ended", **more) -> GangEnd:
    return GangEnd(exit_code=code, retry=retry, reason=reason, time=time and f"2026-11-21T{time}+00:00", **more)


def end_of(*pods, found: Root | None = None) -> GangEnd:
    ends = [end for each in pods if (end := pod_end(each)) is not None]
    return gang_end(found or root("Failed", reason="PodFailurePolicy"), ends)


def test_gang_that_ended_well_has_the_words_of_node_0_and_the_seconds_of_all():
    ends = [
        pod(node, 0, end=said(0, "never", reason=f"node {node} is done", ledger={"train": 2.0}, allocated_seconds=2.0))
        for node in (1, 0, 2)
    ]
    end = end_of(*ends, found=root("Complete"))
    assert (end.exit_code, end.reason, end.ledger, end.allocated_seconds) == (0, "node 0 is done", {"train": 6.0}, 6.0)


def test_first_death_speaks_to_the_millisecond():
    end = end_of(
        pod(0, 30, end=said(30, "never", time="12:00:05.900", reason="rank 0 came second")),
        pod(1, 31, end=said(31, "never", time="12:00:05.100", reason="rank 8 came first")),
    )
    assert (end.exit_code, end.reason) == (31, "rank 8 came first")


@pytest.mark.parametrize("silent", [
    pod(0, 34, at="12:00:01", end=said(34, "same", time="12:00:01.000", reason="lost a peer")),
    pod(0, 143, at="12:00:01", deleted=True),
    pod(0, 143, at="12:00:01"),
    pod(0, 137, at="12:00:01", disrupted=True),
], ids=["lost a peer", "was stopped", "was asked to leave", "was taken and replaced"])  # fmt: skip
def test_pod_that_says_nothing_is_not_a_culprit_although_it_died_first(silent):
    end = end_of(silent, pod(1, 32, end=said(32, "changed", time="12:00:09.000", reason="rank 9 had no memory")))
    assert (end.exit_code, end.reason) == (32, "rank 9 had no memory")


def test_peers_that_lost_each_other_are_a_loss_that_is_tried_again():
    end = end_of(*(pod(node, 34, end=said(34, "same", time=f"12:00:0{node}.000")) for node in range(2)))
    assert (end.exit_code, end.retry) == (34, "same")


@pytest.mark.row("K4")
@pytest.mark.parametrize(
    ("found", "code", "retry", "words"),
    [
        (pod(0, 137, reason="OOMKilled"), 32, "changed", "lack of memory"),
        (pod(0, 137), 137, "same", "by signal 9 without a message"),
        (pod(0, 143), 143, "same", "by signal 15"),
        (pod(0, 137, disrupted=True), 137, "free", "because the platform evicted it"),
        (pod(0, 7, text="Traceback: no such file"), 30, "never", "exit code 7: Traceback: no such file"),
        (pod(0, 70), 30, "never", "exit code 70 without a message"),
        (pod(0, 128, reason="StartError", text="exec: no such file"), 10, "never", "cannot start: exec: no such file"),
        (pod(0, None, status_reason="Evicted", message="The node was low on resource: memory.") | {},
         137, "free", "was evicted: The node was low on resource"),
        (pod(0, 137, status_reason="Evicted", message='Usage of EmptyDir volume "gangline" exceeds the limit "1Gi".'),
         30, "never", "more disk than pod.disk_bytes"),
    ],
)  # fmt: skip
def test_pod_that_left_no_word_is_classed_by_what_the_platform_says(found, code, retry, words):
    found["status"]["phase"] = "Failed"
    end = end_of(found)
    assert (end.exit_code, end.retry) == (code, retry)
    assert words in end.reason
    assert "server-0" in end.reason


def test_deadline_of_the_job_is_reported_as_such():
    stopped = pod(0, 143, deleted=True)
    end = end_of(stopped, found=root("Failed", reason="DeadlineExceeded", activeDeadlineSeconds=600))
    assert (end.exit_code, end.retry) == (30, "never")
    assert "its time limit of 600 s has passed; raise limits.run_seconds of site.toml" in end.reason
    over = root("Failed", reason="DeadlineExceeded", activeDeadlineSeconds=600)
    end = gang_end(over, [pod_end(stopped)], deadline_key="plan.deadline_seconds")
    assert "raise plan.deadline_seconds" in end.reason


def test_pod_that_failed_before_the_deadline_keeps_its_class():
    failed = pod(0, 31, end=said(31, "never", time="12:00:01.000"))
    end = end_of(failed, pod(1, 143, deleted=True), found=root("Failed", reason="DeadlineExceeded"))
    assert end.exit_code == 31


def test_gang_whose_pods_no_one_saw_end_is_lost():
    end = gang_end(None, [])
    assert (end.exit_code, end.retry) == (137, "same")
    assert "exit codes are unknown" in end.reason


def test_last_generation_that_anybody_knew_counts():
    speaker = said(70, "never", reason="cancelled: enough")
    ends = [pod_end(pod(node, 143, end=said(143, "free", generation=node, restarts=node))) for node in range(3)]
    end = combine_ends(speaker, ends)
    assert (end.exit_code, end.reason, end.generation, end.restarts) == (70, "cancelled: enough", 2, 2)


def test_cancelled_gang_says_what_its_leading_node_had_saved_last():
    speaker = said(70, "never", reason="cancelled: enough")
    stopped = [
        pod(0, 143, at=at, uid=at, end=said(143, "free", time=at, step=step, saved_step=saved))
        for at, step, saved in (("12:00:01", 40, 40), ("12:00:09", 57, 50))
    ]
    other = pod(1, 143, end=said(143, "free", time="12:00:09", step=58, saved_step=0))
    end = combine_ends(speaker, [pod_end(each) for each in (*stopped, other)])
    assert (end.exit_code, end.step, end.saved_step) == (70, 57, 50)


def test_restarts_of_a_single_pod_that_was_replaced_add_up():
    ends = [pod_end(pod(0, 143, uid=str(n), end=said(143, "free", restarts=n))) for n in range(3)]
    assert combine_ends(said(0, "never"), ends).restarts == 0 + 1 + 2 + 2


def test_pod_that_runs_has_not_ended():
    assert pod_end({"metadata": {"uid": "u", "name": "n"}, "status": {"phase": "Running"}}) is None


def test_recorded_container_that_cannot_start_is_a_wrong_file():
    kept = json.loads((SNAPSHOTS / "no-command.json").read_text())
    end = gang_end(Root("", kept["root"]), [pod_end(each) for each in kept["pods"]])
    assert end.exit_code == 10
    assert '"/nothing": stat /nothing: no such file or directory' in end.reason


def test_times_that_are_none_order_last():
    odd = pod(0, 30, end=GangEnd(exit_code=30, retry="never", reason="odd clock", time="soon"))
    end = end_of(odd, pod(1, 31, end=said(31, "never", time="12:00:09.000", reason="known clock")))
    assert end.reason == "known clock"
