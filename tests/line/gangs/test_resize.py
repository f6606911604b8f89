"""Asking for another number of ranks: what is refused, and where the wish lies."""

from dataclasses import replace

import pytest
from tests.report import records
from tests.train.gang import tiny_plan

from gangline.errors import UsageError
from gangline.line.gangs.resize import request_resize
from gangline.spec.gang.status import ResizeRequest, resize_key
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Size
from gangline.spec.record import StageInfo
from gangline.storage.objects.blobs import put_blob
from gangline.storage.open import open_store

SIZES = tuple(Size(name=f"ddp-{n}", strategy="ddp", mesh=Mesh(dp_replicate=n), micro_batch=1) for n in (1, 3))


@pytest.fixture
def store(tmp_path):
    return open_store(f"file:{tmp_path / 'store'}")


def training(store, *, sizes=SIZES, **run):
    record = records.passed()
    plan = replace(record.plan, key=put_blob(store, tiny_plan("ddp", sizes=sizes).to_json()))
    run = replace(record.run, **{"state": "open", "verdict": None, "exit_code": None} | run)
    return replace(record, run=run, plan=plan, stages={"train": StageInfo(state="running")})


def test_resize_request_is_where_rank_0_looks_and_the_newest_counts(store):
    record = training(store)
    assert request_resize(store, record, 3).name == "ddp-3"
    assert request_resize(store, record, 1).world_size == 1
    assert ResizeRequest.from_json(store.get(resize_key(record.gang_prefix)).data).ranks == 1


@pytest.mark.parametrize(
    ("change", "ranks", "said"),
    [
        ({"sizes": ()}, 4, r"ready for 2 only; train.ranks = \[1, 4\]"),
        ({}, 5, "ready for 1, 2, 3"),
        ({"state": "ended"}, 3, "is not training"),
        ({"target": "kubernetes"}, 3, "its pods at kubernetes have room for 2"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(store, change, ranks, said):
    record = training(store, **change)
    with pytest.raises(UsageError, match=said):
        request_resize(store, record, ranks)
    assert store.get(resize_key(record.gang_prefix)) is None
