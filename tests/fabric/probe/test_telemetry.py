"""Diagnoses: evidence, cost and action of what was measured; nothing of what was not."""

import pytest

from gangline.fabric.probe.preflight import PreflightResult
from gangline.fabric.probe.telemetry import (
    diagnose_preflight,
    diagnose_slow_ranks,
    diagnose_stages,
)
from gangline.spec.measurements import RankRow, Remedy
from gangline.spec.mesh import Mesh

SLOW = {
    "event": "straggler", "slow": 3, "step": 71, "node": 1, "ratio": 1.25, "seconds": 0.02, "step_seconds": 0.12,
    "phase": "data", "wait_share": 0.02,
}  # fmt: skip


def slow_ranks(*events, mesh=None):
    return diagnose_slow_ranks(events, mesh=mesh or Mesh(dp_shard=8), global_batch=64, nodes={3: "a7"})


def test_slow_rank_has_evidence_cost_and_its_server():
    (found,) = slow_ranks(SLOW)
    assert found.names == ("rank 3",)
    assert found.evidence == (
        "since step 71 on a7: its work takes 1.25 times as long as that of its peers, most of it in data, and it waits "
        "least: 2 % of its step"
    )
    assert found.cost_percent == pytest.approx(16.67, abs=0.01)
    assert found.action == Remedy(kind="quarantine", names=("a7",))


def test_node_without_a_name_is_called_by_its_number():
    (found,) = diagnose_slow_ranks([SLOW], mesh=Mesh(dp_shard=8), global_batch=64, nodes={3: "0"})
    assert "on node 0: " in found.evidence
    assert found.action.names == ("node 0",)


def test_replicas_get_shares_by_their_speed_and_what_these_save():
    """Of 0.1 s of work on the slow rank, 0.02 s are its own; seven samples take 0.07 / 0.08 of what eight took."""
    (found,) = slow_ranks(SLOW, mesh=Mesh(dp_replicate=8))
    assert found.action.kind == "new_shares"
    assert found.action.shares == (9, 8, 8, 7, 8, 8, 8, 8)
    assert found.action.saves_percent == pytest.approx(100 * (0.1 - 0.09) / 0.12)
    assert found.action.most_percent == pytest.approx(100 * (0.1 - 0.08 * 8 / 7.8) / 0.12)


def test_shares_that_save_nothing_or_cannot_be_taken_are_not_advised():
    replicas = Mesh(dp_replicate=8)
    few = diagnose_slow_ranks([SLOW], mesh=replicas, global_batch=8, nodes={3: "a7"})
    rarely = diagnose_slow_ranks([SLOW], mesh=replicas, global_batch=64, nodes={3: "a7"}, weighs_samples=False)
    (barely,) = slow_ranks(SLOW | {"ratio": 1.04}, mesh=replicas)
    assert [each.action for each in (*few, *rarely, barely)] == [Remedy(kind="quarantine", names=("a7",))] * 3


def test_what_shares_save_of_steps_without_times_is_not_known():
    (found,) = slow_ranks(SLOW | {"seconds": None}, mesh=Mesh(dp_replicate=8))
    assert found.action.shares
    assert found.action.saves_percent is None


def test_rank_that_recovered_is_not_a_diagnosis_and_the_costliest_comes_first():
    assert slow_ranks(SLOW, {"event": "straggler_over", "slow": 3}) == ()
    found = slow_ranks(SLOW, SLOW | {"slow": 5, "seconds": 0.06})
    assert [each.names for each in found] == [("rank 5",), ("rank 3",)]


@pytest.mark.parametrize(
    "event",
    [{"slow": "x"}, {"slow": 99}, {"slow": -1}, {"slow": None}, {"slow": [1]}],
)
def test_events_of_another_shape_name_no_one(event):
    assert slow_ranks(SLOW | event) == ()


def test_what_an_event_does_not_say_is_not_known():
    (found,) = slow_ranks({"event": "straggler", "slow": 1, "seconds": "much", "phase": "<b>" * 999, "ratio": -5})
    assert found.cost_percent is None
    assert len(found.evidence) < 200


def row(rank, work, wait):
    return RankRow(
        rank=rank, node="n", phases={"forward": work / 3, "backward": 2 * work / 3, "wait": wait, "bubble": 0.0}
    )


def test_stage_that_does_more_is_the_plans_fault():
    mesh = Mesh(pp=2, dp_shard=2)
    (found,) = diagnose_stages([row(0, 6, 4), row(1, 6, 4), row(2, 9, 1), row(3, 9, 1)], mesh=mesh)
    assert (found.kind, found.names, found.action) == ("stage_imbalance", ("stage 1",), Remedy(kind="new_plan"))
    assert found.cost_percent == pytest.approx(15.0)
    assert diagnose_stages([row(0, 8, 2), row(1, 8, 2), row(2, 8.5, 1.5), row(3, 8.5, 1.5)], mesh=mesh) == ()


def test_stages_of_which_one_did_not_report_are_not_compared():
    assert diagnose_stages([row(0, 6, 4), row(1, 9, 1)], mesh=Mesh(pp=2, dp_shard=2)) == ()
    assert diagnose_stages([row(0, 6, 4), row(1, 9, 1)], mesh=Mesh(dp_shard=2)) == ()
    assert diagnose_stages([], mesh=Mesh(pp=2)) == ()


def test_server_that_was_slow_twice_is_named_with_its_best():
    result = PreflightResult(
        culprits=("a", "b"), unsure=(), bytes_per_second={("a", "c"): 2e8, ("a", "d"): 3e8, ("b", "d"): 0.0},
        usual_bytes_per_second=1e9,
    )  # fmt: skip
    slow, dead = diagnose_preflight(result)
    assert (slow.kind, slow.evidence) == ("sick_host", "slow with two partners: 300 MB/s at best, usual are 1.0 GB/s")
    assert (dead.kind, dead.evidence) == ("sick_host", "no partner reached it")
