"""What a training left is read as it was written, torn lines, several attempts and silent ranks included."""

import json
from types import SimpleNamespace

from gangline.line.results.rank_times import read_parts, read_ranks, read_save_seconds
from gangline.line.results.training_result import read_metrics
from gangline.line.stages.prove import largest_difference, loss_price
from gangline.spec.gang.status import JobResult
from gangline.storage.folder.store import FolderStore
from gangline.storage.objects import growing_file

PLAN = SimpleNamespace(role="train", run_prefix="runs/p/c/r", output_prefix="runs/p/c/r")


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def step(number, loss):
    return {"step": number, "loss": loss}


def test_attempts_are_read_as_one_course_and_reading_again_changes_nothing(tmp_path):
    store = FolderStore(tmp_path)
    ctx = SimpleNamespace(store=store)
    store.put("runs/p/c/r/metrics-1.jsonl", lines(step(1, 4.0), step(2, 3.9)) + b'{"step": 3, "lo')
    store.put("runs/p/c/r/metrics.jsonl", lines(step(2, 3.0), step(3, 2.0)))
    rows, file = read_metrics(ctx, PLAN, 2)
    assert [row["loss"] for row in rows.values()] == [4.0, 3.0, 2.0]
    text = store.get("runs/p/c/r/metrics.jsonl").data
    assert text == file.read() == lines(step(1, 4.0), step(2, 3.0), step(3, 2.0))
    again, file = read_metrics(ctx, PLAN, 2)
    assert (dict(again), file.read()) == (dict(rows), text)


def test_an_attempt_that_began_again_and_ended_sooner_leaves_no_points_of_the_one_before(tmp_path):
    store = FolderStore(tmp_path)
    store.put("runs/p/c/r/metrics-1.jsonl", lines(*(step(number, 4.0) for number in range(1, 7))))
    store.put("runs/p/c/r/metrics.jsonl", lines(step(2, 3.0), step(3, 2.0)))
    rows, file = read_metrics(SimpleNamespace(store=store), PLAN, 2)
    assert [row["loss"] for row in rows.values()] == [4.0, 3.0, 2.0]
    assert file.read() == lines(step(1, 4.0), step(2, 3.0), step(3, 2.0))


def test_course_in_parts_becomes_the_one_object_that_the_record_names(tmp_path, monkeypatch):
    monkeypatch.setattr(growing_file, "PART_BYTES", 100)
    store, local = FolderStore(tmp_path / "store"), tmp_path / "metrics.jsonl"
    local.write_bytes(lines(*(step(number, 4.0) for number in range(20))))
    growing_file.GrowingFileWriter(store, "runs/p/c/r/metrics.jsonl").send(local)
    assert len(store.list("runs/")) > 1
    rows, file = read_metrics(SimpleNamespace(store=store), PLAN, 1)
    assert list(rows) == list(range(20))
    assert file.read() == local.read_bytes()
    assert [entry.key for entry in store.list("runs/")] == ["runs/p/c/r/metrics.jsonl"]
    assert store.get("runs/p/c/r/metrics.jsonl").data == local.read_bytes()


def test_without_metrics_there_is_no_course(tmp_path):
    rows, file = read_metrics(SimpleNamespace(store=FolderStore(tmp_path)), PLAN, 1)
    assert (dict(rows), file) == ({}, None)


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


def test_a_step_is_reported_by_parts_without_the_steps_that_set_things_up(tmp_path):
    store = FolderStore(tmp_path)
    slow = {"forward": 9.0, "backward": 9.0, "wait": 9.0}
    own = {"forward": 0.2, "backward": 0.3, "wait": 0.1, "data": 0.0}
    rows = [slow, slow, own, own, own | {"checkpoint": 0.4, "wait": 0.7}, own]
    store.put("p/ranks/0.jsonl", lines(*({"event": "step", "phases": row} for row in rows)))
    store.put("p/ranks/1.jsonl", lines(*({"event": "step", "phases": own | {"wait": 0.3}} for _ in range(4))))
    parts = read_parts(store, "p", world_size=3)
    assert parts == {"compute": 0.5, "communication": 0.2, "checkpoint": 0.05}
    assert read_parts(store, "nowhere", world_size=2) == {}


def test_of_many_ranks_eight_are_timed_first_and_far_ones_alike(tmp_path):
    store = FolderStore(tmp_path)
    for rank in range(100):
        phases = {"forward": 1.0 if rank in {0, 12, 25, 37, 50, 62, 75, 87} else 1e9}
        store.put(f"p/ranks/{rank}.jsonl", lines({"event": "step", "phases": phases}))
    assert read_parts(store, "p", world_size=100) == {"compute": 1.0}


def test_cost_of_a_save_is_the_mean_time_that_training_stood_still(tmp_path):
    store = FolderStore(tmp_path)
    assert read_save_seconds(store, "runs/p/c/r") is None
    saves = [{"event": "saved", "step": step, "blocking_seconds": seconds} for step, seconds in ((3, 0.5), (6, 1.5))]
    store.put("runs/p/c/r/ranks/0.jsonl", lines({"event": "step", "step": 1}, *saves))
    assert read_save_seconds(store, "runs/p/c/r") == 1.0


def test_price_of_lossy_exchange_is_the_mean_gap_of_the_later_half():
    job = JobResult(seed=1, step=4, losses=((1, 3.0), (2, 2.5), (3, 2.0), (4, 1.5), (9, 1.0)))
    assert loss_price({1: 9.0, 2: 9.0, 3: 2.5, 4: 1.75}, job) == 0.375
    assert loss_price({3: float("inf")}, job) is None
    assert loss_price({}, job) is None


def test_the_largest_difference_is_over_shared_steps_and_no_number_is_infinite():
    job = JobResult(seed=1, step=3, losses=((1, 3.0), (2, 2.5), (9, 1.0)))
    assert largest_difference({1: 3.0, 2: 2.25, 3: 7.0}, job) == 0.25
    assert largest_difference({5: 1.0}, job) is None
    assert largest_difference({1: float("nan")}, job) == float("inf")
