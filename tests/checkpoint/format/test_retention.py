"""Retention never takes the newest good checkpoint; collection never takes what a manifest lists."""

import math
import time

import pytest
import torch
from tests.checkpoint.folders import KEY, write_checkpoint

from gangline.checkpoint.format import retention
from gangline.checkpoint.format.manifest import list_checkpoints
from gangline.checkpoint.format.retention import collect, collect_left_files, retain
from gangline.checkpoint.format.stored_tensors import stored_digests
from gangline.storage.objects.errors import PermissionDenied


@pytest.fixture
def four(store):
    for step in (1, 2, 3, 4):
        write_checkpoint(store, f"p/step-{step:08d}", {"model/x": torch.full((3,), float(step))}, step=step)
    return store


def steps(store):
    return [found.step for found in list_checkpoints(store, "p")]


def keys(store):
    return [entry.key for entry in store.list("p")]


def test_newest_are_kept_and_the_rest_leaves_nothing(four):
    assert retain(four, "p", KEY, keep=2) == [2, 1]
    assert steps(four) == [4, 3]
    assert all("step-00000003" in key or "step-00000004" in key for key in keys(four))


@pytest.mark.parametrize("keep", [-1, 0, 1])
def test_newest_good_one_stays_whatever_is_asked(four, keep):
    four.put("p/step-00000004/manifest.json", b"damaged")
    retain(four, "p", KEY, keep=keep)
    assert steps(four) == [4, 3]
    assert stored_digests(four, "p/step-00000003", KEY)


def test_manifest_goes_first(four):
    deleted = []

    class Watched:
        get, list = four.get, four.list

        def delete(self, key):
            deleted.append(key)
            four.delete(key)

    retain(Watched(), "p", KEY, keep=3)
    assert deleted[0] == "p/step-00000001/manifest.json"
    assert len(deleted) > 2


def test_leftovers_are_collected_once_they_are_old(four):
    four.put("p/step-00000004/g0001-r00009-0.safetensors", b"orphan")
    four.put("p/step-00000009/g0001-index.json", b"orphan")
    whole = stored_digests(four, "p/step-00000004", KEY)
    assert collect(four, "p", KEY, now=time.time()) == []
    gone = collect(four, "p", KEY, now=time.time() + 3600)
    assert gone == ["p/step-00000004/g0001-r00009-0.safetensors", "p/step-00000009/g0001-index.json"]
    assert stored_digests(four, "p/step-00000004", KEY) == whole


def test_leftovers_of_a_replaced_generation_are_collected_at_any_age(four):
    for name in ("g0002-r00000-0.safetensors", "g0003-r00000-0.safetensors", "notes.txt"):
        four.put(f"p/step-00000009/{name}", b"orphan")
    gone = collect(four, "p", KEY, now=0.0, older_than=math.inf, generation=3)
    assert gone == ["p/step-00000009/g0002-r00000-0.safetensors"]
    assert steps(four) == [4, 3, 2, 1]


def test_files_of_a_checkpoint_that_does_not_verify_are_kept_as_evidence(four):
    four.put("p/step-00000004/manifest.json", b"damaged")
    assert collect(four, "p", KEY, now=time.time() + 3600) == []


@pytest.mark.row("S6")
def test_abandoned_uploads_are_collected(four):
    opened = four.upload("p/step-00000009/g0001-r00000-0.safetensors")
    opened.__enter__().part(b"x" * 6 * 2**20)  # its writer is killed before it leaves the block
    assert collect(four, "p", KEY, now=time.time()) == []
    assert len(four.open_uploads("p")) == 1
    assert collect(four, "p", KEY, now=time.time() + 3600) == ["p/step-00000009/g0001-r00000-0.safetensors"]
    assert four.open_uploads("p") == []


def test_nothing_unfinished_stays_of_a_run_that_is_over_and_nothing_of_others_goes(four):
    left = ["p/step-00000004/g0000-r00001-0.safetensors", "p/step-00000005/g0003-r00000-0.safetensors"]
    mine = "p/step-00000005/model.pt"
    before = keys(four)
    for key in (*left, mine):
        four.put(key, b"x")
    assert collect_left_files(four, "p", KEY) == left
    assert keys(four) == sorted([*before, mine])


def test_of_more_checkpoints_than_anybody_keeps_nothing_is_read_and_nothing_goes(four, monkeypatch):
    monkeypatch.setattr(retention, "MOST_CHECKPOINTS", 3)
    monkeypatch.setattr(retention, "read_manifest", None)
    four.put("p/step-00000009/g0001-index.json", b"orphan")
    assert collect_left_files(four, "p", KEY) == []


def test_who_may_not_see_uploads_collects_the_rest(four, monkeypatch):
    def refuse(_prefix):
        raise PermissionDenied("AccessDenied")

    monkeypatch.setattr(four, "open_uploads", refuse)
    four.put("p/step-00000009/g0001-index.json", b"orphan")
    assert collect_left_files(four, "p", KEY) == ["p/step-00000009/g0001-index.json"]
