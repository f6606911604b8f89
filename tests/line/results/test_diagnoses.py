"""Diagnoses of a finished gang, from the events that its rank 0 stored and the phases of its ranks."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.train.gang import tiny_plan

from gangline.line.results import training_result
from gangline.line.results.training_result import MOST_DIAGNOSES, read_diagnoses
from gangline.spec.measurements import RankRow
from gangline.spec.mesh import Mesh
from gangline.storage.folder.store import FolderStore

PLAN = tiny_plan("fsdp", mesh=Mesh(dp_shard=32), global_batch=32, micro_batch=1)
SLOW = {"event": "straggler", "slow": 3, "step": 71, "node": 1, "ratio": 1.3, "seconds": 0.02, "step_seconds": 0.1}
ROWS = tuple(RankRow(rank=rank, node=f"a{rank}", phases={"forward": 0.6, "wait": 0.4}) for rank in range(4))


@pytest.fixture
def read(tmp_path):
    """Diagnoses of a gang whose rank 0 stored these events; `bound` adds what bounds it, which others leave out."""

    def call(*events, plan=PLAN, rows=ROWS, bound=False):
        store = FolderStore(tmp_path / "store")
        lines = "\n".join(each if isinstance(each, str) else json.dumps(each) for each in events)
        store.put(f"{plan.output_prefix}/ranks/0.jsonl", lines.encode())
        found = read_diagnoses(SimpleNamespace(store=store), SimpleNamespace(plan=plan, attempts=1), rows)
        return tuple(each for each in found if bound or each.kind != "bound")

    return call


def test_slow_rank_is_diagnosed_on_its_server(read):
    (found,) = read({"event": "step", "step": 1}, SLOW)
    assert (found.kind, found.names, found.action.names) == ("slow_rank", ("rank 3",), ("a3",))
    assert found.cost_percent == pytest.approx(20)


def test_stage_that_is_too_long_is_diagnosed(read):
    plan = replace(PLAN, mesh=Mesh(pp=2, dp_shard=2))
    rows = [replace(row, phases={"forward": 0.9 if row.rank > 1 else 0.5, "bubble": 0.1}) for row in ROWS]
    (found,) = read({"event": "step"}, plan=plan, rows=[replace(r, phases=r.phases | {"wait": 0.4}) for r in rows])
    assert (found.kind, found.names) == ("stage_imbalance", ("stage 1",))


def test_what_bounds_the_gang_comes_first_with_what_rank_0_read(read):
    reads = {"event": "shards", "bytes": 2e9, "seconds": 10.0, "fetched": 30, "cached": 10}
    rows = [replace(row, phases={"data": 0.3, "forward": 0.3, "backward": 0.3, "wait": 0.1}) for row in ROWS]
    (found, slow) = read(reads, SLOW, rows=rows, bound=True)
    assert (found.kind, found.names, found.action.kind, slow.kind) == ("bound", ("data",), "warm", "slow_rank")
    assert "store 200 MB/s · 25 % of reads cached" in found.evidence
    (found,) = read(reads, SLOW, rows=rows, bound=True, plan=replace(PLAN, device="cuda"))
    assert found.names == ("data",)


def test_gang_on_gpus_is_not_diagnosed(read):
    assert read(SLOW, plan=replace(PLAN, device="cuda")) == ()


def test_what_a_gang_wrote_fails_nothing_and_fills_no_record(read):
    assert read("{", "[1]", '{"event": "straggler", "slow": "<b>"}', {"event": "straggler_over"}) == ()
    assert len(read(*(SLOW | {"slow": rank} for rank in range(32)), bound=True)) == MOST_DIAGNOSES


def test_too_many_events_are_not_read(read, monkeypatch):
    monkeypatch.setattr(training_result, "MOST_EVENT_BYTES", 10)
    assert read(SLOW) == ()
