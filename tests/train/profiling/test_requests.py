"""Windows of real gangs: who is named answers, the others do not notice, the books say what it cost."""

import gzip
import json

import pytest
from tests.train.gang import tiny_plan
from tests.train.gpu import DEVICE, needs_device

from gangline.errors import StorageError
from gangline.spec.gang.profiling import ProfileRequest, ProfileSummary, request_key
from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy
from gangline.train.profiling.requests import RequestWatcher

PLAN = tiny_plan("ddp", steps=30, checkpoint=CheckpointPolicy(every=30))


def ask(gang, plan, first, last, ranks, word="w"):
    gang.store.put(
        request_key(plan.run_prefix), ProfileRequest(first=first, last=last, ranks=ranks, word=word).to_json()
    )


def answer(gang, name, rank):
    return gang.home / "out" / "profiles" / name / f"rank-{rank}.json"


def test_the_rank_that_is_named_answers_with_a_trace_and_the_ledger_says_so(make_gang):
    gang = make_gang()
    ask(gang, PLAN, 10, 12, (1,))
    assert gang.run(PLAN) == [0, 0], gang.log(1)
    summary = ProfileSummary.from_json(answer(gang, "10-12", 1).read_bytes())
    assert [each.step for each in summary.steps] == [10, 11, 12]
    assert summary.categories["matmul"] > 0
    assert summary.categories["communication"] > 0
    assert summary.peak_bytes > 0
    assert {"data", "forward", "backward", "optimizer"} <= {name for _, name in summary.phases}
    assert max(summary.peak_by_phase.values()) <= summary.peak_bytes
    assert 0 <= summary.hidden_share <= 1
    assert 0 <= summary.idle_share < 1
    trace = answer(gang, "10-12", 1).with_name(summary.trace)
    assert trace.stat().st_size == summary.trace_bytes
    assert any(
        event.get("name") == "step 11" for event in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    )
    assert not answer(gang, "10-12", 0).exists()
    assert gang.events(1, "ledger")[-1]["seconds"]["profile"] > 0
    assert "profile" not in gang.events(0, "ledger")[-1]["seconds"]
    assert [each["step"] for each in gang.events(1, "step")] == list(range(1, 31))


def test_a_window_that_is_over_begins_at_once_and_one_that_has_no_end_ends_with_the_training(make_gang):
    gang = make_gang()
    late = tiny_plan("none", steps=30, mesh=Mesh(), checkpoint=CheckpointPolicy(every=30))
    ask(gang, late, 1, 60, (0,))
    assert gang.run(late) == [0], gang.log()
    steps = [each.step for each in ProfileSummary.from_json(answer(gang, "1-60", 0).read_bytes()).steps]
    assert steps[0] > 1
    assert steps[-1] == 30


def test_a_request_that_was_answered_is_not_answered_again_by_the_next_generation(make_gang):
    gang = make_gang()
    plan = tiny_plan("none", steps=40, mesh=Mesh(), checkpoint=CheckpointPolicy(every=20))
    ask(gang, plan, 5, 6, (0,))
    assert gang.run(plan, STRIKE="kill:0:30") == [137], gang.log()
    written = answer(gang, "5-6", 0).stat().st_mtime_ns
    assert gang.run(plan) == [0], gang.log()
    assert answer(gang, "5-6", 0).stat().st_mtime_ns == written
    assert len(gang.events(0, "profiled")) == 1


def test_a_training_is_the_same_to_the_last_bit_under_the_profiler(make_gang):
    plain, watched = make_gang(), make_gang()
    ask(watched, PLAN, 5, 9, (0, 1))
    assert [plain.run(PLAN), watched.run(PLAN)] == [[0, 0], [0, 0]]
    assert plain.result().jobs[0].losses == watched.result().jobs[0].losses


def test_the_lookout_reports_each_request_once_and_bears_a_store_that_is_away():
    answers = iter([StorageError("away"), None, b"one", b"one", b"two"])
    seen = []

    def read():
        found = next(answers, b"two")
        if isinstance(found, Exception):
            raise found
        seen.append(found)
        return found

    lookout = RequestWatcher(read, seconds=0.001)
    taken = 0
    while b"two" not in seen[:-1]:
        taken += lookout.take()
    lookout.stop()
    taken += lookout.take()
    assert 1 <= taken <= 2


@pytest.mark.gpu
@needs_device
def test_on_a_gpu_its_kernels_are_reported(make_gang):
    gang = make_gang()
    plan = tiny_plan(
        "none", steps=30, mesh=Mesh(), device=DEVICE, deterministic=False, checkpoint=CheckpointPolicy(every=30)
    )
    ask(gang, plan, 10, 12, (0,))
    assert gang.run(plan) == [0], gang.log()
    summary = ProfileSummary.from_json(answer(gang, "10-12", 0).read_bytes())
    assert summary.device == DEVICE
    assert summary.categories["matmul"] > 0
