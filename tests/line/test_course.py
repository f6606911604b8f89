"""What a training left is read as it was written, torn lines, several attempts and silent ranks included."""

import json
from types import SimpleNamespace

from gangline.line.course import read_metrics
from gangline.line.rank_rows import read_ranks
from gangline.line.stages.prove import largest_difference
from gangline.spec.gang import JobResult
from gangline.storage.local import FolderStore

PLAN = SimpleNamespace(role="train", run_prefix="runs/p/c/r")


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def step(number, loss):
    return {"step": number, "loss": loss}


def test_attempts_are_read_as_one_course_and_reading_again_changes_nothing(tmp_path):
    store = FolderStore(tmp_path)
    ctx = SimpleNamespace(store=store)
    store.put("runs/p/c/r/metrics-1.jsonl", lines(step(1, 4.0), step(2, 3.9)) + b'{"step": 3, "lo')
    store.put("runs/p/c/r/metrics.jsonl", lines(step(2, 3.0), step(3, 2.0)))
    rows, text = read_metrics(ctx, PLAN, 2)
    assert [row["loss"] for row in rows.values()] == [4.0, 3.0, 2.0]
    assert store.get("runs/p/c/r/metrics.jsonl").data == text
    assert read_metrics(ctx, PLAN, 2) == (rows, text)


def test_without_metrics_there_is_no_course(tmp_path):
    assert read_metrics(SimpleNamespace(store=FolderStore(tmp_path)), PLAN, 1) == ({}, b"")


def test_rank_rows_sum_phases_and_leave_out_the_silent(tmp_path):
    store = FolderStore(tmp_path)
    events = [
        {"event": "started", "node": "here"},
        {"event": "step", "step": 1, "seconds": 0.1, "phases": {"forward": 0.06, "wait": 0.04}, "peak_bytes": 5},
        {"event": "step", "step": 2, "seconds": 0.3, "phases": {"forward": 0.1}, "peak_bytes": 9},
    ]
    store.put("p/ranks/0.jsonl", lines(*events))
    store.put("p/ranks/2.jsonl", lines({"event": "started", "node": "there"}))
    (row,) = read_ranks(store, "p", world_size=3)
    assert (row.rank, row.node, row.peak_memory_bytes) == (0, "here", 9)
    assert row.phases == {"forward": 0.16, "wait": 0.04}
    assert row.step_seconds == 0.2


def test_the_largest_difference_is_over_shared_steps_and_no_number_is_infinite():
    job = JobResult(seed=1, step=3, losses=((1, 3.0), (2, 2.5), (9, 1.0)))
    assert largest_difference({1: 3.0, 2: 2.25, 3: 7.0}, job) == 0.25
    assert largest_difference({5: 1.0}, job) is None
    assert largest_difference({1: float("nan")}, job) == float("inf")
