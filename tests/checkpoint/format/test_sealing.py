"""Two gangs of one run: the newer one wins, the older one learns that it was replaced."""

import json

import pytest
import torch
from tests.checkpoint.folders import KEY, write_checkpoint

from gangline.checkpoint.format.commit import Latest, StaleGeneration, advance, claim, read_latest, seal
from gangline.checkpoint.format.manifest import read_manifest
from gangline.errors import StorageError

FOLDER = "p/step-00000001"


def test_hint_moves_with_the_steps_and_the_generations(store):
    assert read_latest(store, "p") is None
    claim(store, "p", 1)
    assert read_latest(store, "p") == Latest(step=None, generation=1)
    advance(store, "p", 1, 200)
    claim(store, "p", 2)
    assert read_latest(store, "p") == Latest(step=200, generation=2)
    advance(store, "p", 2, 100)
    assert read_latest(store, "p") == Latest(step=100, generation=2)


@pytest.mark.parametrize("act", [lambda s: claim(s, "p", 3), lambda s: advance(s, "p", 3, 300)])
def test_stale_generation_moves_nothing(store, act):
    advance(store, "p", 4, 200)
    with pytest.raises(StaleGeneration, match="generation 4 writes to p; generation 3 must stop"):
        act(store)
    assert read_latest(store, "p") == Latest(step=200, generation=4)


@pytest.mark.parametrize("damage", [b"", b"{", b"[" * 9000, json.dumps({"step": 1}).encode()])
def test_damaged_hint_binds_no_one_and_is_replaced(store, damage):
    store.put("p/latest.json", damage)
    assert read_latest(store, "p") is None
    advance(store, "p", 1, 5)
    assert read_latest(store, "p") == Latest(step=5, generation=1)


class Overtaken:
    """A store in which something else happens right after the first look at `name`."""

    def __init__(self, store, name, happens):
        self._store, self._name, self._happens = store, name, happens

    def __getattr__(self, name):
        return getattr(self._store, name)

    def get(self, key, *span):
        found = self._store.get(key, *span)
        if key.endswith(self._name) and self._happens is not None:
            happens, self._happens = self._happens, None
            happens()
        return found


def test_hint_that_moved_after_the_look_is_looked_at_again(store):
    advance(store, "p", 1, 100)
    overtaken = Overtaken(store, "latest.json", lambda: advance(store, "p", 2, 200))
    with pytest.raises(StaleGeneration, match="generation 2 writes to p"):
        advance(overtaken, "p", 1, 150)
    assert read_latest(store, "p") == Latest(step=200, generation=2)


def test_hint_that_is_contended_for_gives_up_as_store_trouble(store):
    class Contended:
        get = store.get

        def put_if_absent(self, key, data):
            return None

    with pytest.raises(StorageError, match="several gangs"):
        claim(Contended(), "p", 1)


def test_newer_generation_replaces_the_manifest_of_a_step(store):
    write_checkpoint(store, FOLDER, {"model/x": torch.ones(1)}, generation=1)
    write_checkpoint(store, FOLDER, {"model/x": torch.zeros(1)}, generation=2)
    assert read_manifest(store, FOLDER, KEY).generation == 2


def test_older_generation_does_not_replace_the_manifest_of_a_step(store):
    write_checkpoint(store, FOLDER, {"model/x": torch.ones(1)}, generation=2)
    with pytest.raises(StaleGeneration, match="is of generation 2; generation 1 must stop"):
        write_checkpoint(store, FOLDER, {"model/x": torch.zeros(1)}, generation=1)
    assert read_manifest(store, FOLDER, KEY).generation == 2


def test_manifest_that_changed_after_the_look_is_not_written_over(store):
    write_checkpoint(store, FOLDER, {"model/x": torch.ones(1)}, generation=1)
    overtaken = Overtaken(
        store, "manifest.json", lambda: write_checkpoint(store, FOLDER, {"model/x": torch.zeros(1)}, generation=3)
    )  # fmt: skip
    with pytest.raises(StorageError, match=r"manifest\.json changed while it was written"):
        write_checkpoint(overtaken, FOLDER, {"model/x": torch.ones(1)}, generation=2)
    assert read_manifest(store, FOLDER, KEY).generation == 3


def test_damaged_manifest_is_replaced_by_the_next_save_of_its_step(store):
    store.put(f"{FOLDER}/manifest.json", b"\0" * 100)
    write_checkpoint(store, FOLDER, {"model/x": torch.ones(1)})
    assert read_manifest(store, FOLDER, KEY).step == 1


def test_writing_the_same_manifest_again_changes_nothing(store):
    first = write_checkpoint(store, FOLDER, {"model/x": torch.ones(1)})
    assert write_checkpoint(store, FOLDER, {"model/x": torch.ones(1)}) == first


class Garbling:
    """A store that answers yes and keeps something else."""

    def __init__(self, store, name):
        self._store, self._name = store, name

    def __getattr__(self, name):
        return getattr(self._store, name)

    def put_if_absent(self, key, data):
        return self._store.put_if_absent(key, data[:-1] + b"!" if key.endswith(self._name) else data)


def test_manifest_that_does_not_read_back_is_not_success(store):
    with pytest.raises(StorageError, match="does not read back as it was written"):
        write_checkpoint(Garbling(store, "manifest.json"), FOLDER, {"model/x": torch.ones(1)})
    assert read_latest(store, "p") is None or read_latest(store, "p").step is None


def test_file_that_vanished_while_others_were_written_is_not_success(store):
    manifest = write_checkpoint(store, FOLDER, {"model/x": torch.ones(1)})
    shard = next(name for name in manifest.files if name.endswith(".safetensors"))
    store.delete(f"{FOLDER}/manifest.json")
    store.delete(f"{FOLDER}/{shard}")
    with pytest.raises(StorageError, match="is incomplete after it was written"):
        seal(store, FOLDER, manifest, KEY)
