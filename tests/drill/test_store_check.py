"""What stands in a drilled run's store: half a checkpoint, a changed byte and a number that is not finite are found."""

import pytest
import torch
from tests.checkpoint.folders import KEY, write_checkpoint

from gangline.drill.execute import incomplete_checkpoints, invalid_checkpoints
from gangline.storage.folder.store import FolderStore

PREFIX = "runs/p/c/r/checkpoints"
FOLDER = f"{PREFIX}/step-00000004"
SHARD = f"{FOLDER}/g0001-r00000-0.safetensors"


@pytest.fixture
def store(tmp_path):
    return FolderStore(tmp_path / "store")


def write(store, bad=None, dtype=torch.float32):
    tensor = torch.ones(3, 5, dtype=dtype)
    if bad is not None:
        tensor[1, 2] = bad
    write_checkpoint(store, FOLDER, {"model/w": tensor, "model/steps": torch.tensor([2**62 + 7])}, step=4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_a_sound_checkpoint_is_sound_and_one_bad_number_is_named(store, dtype):
    write(store, dtype=dtype)
    assert invalid_checkpoints(store, PREFIX, KEY) == []
    for bad in (float("nan"), float("inf"), float("-inf")):
        write(store, bad, dtype)
        assert invalid_checkpoints(store, PREFIX, KEY) == [
            "the checkpoint of step 4 holds model/w, which is not finite"
        ]


def test_a_listed_checkpoint_without_one_of_its_files_is_half(store):
    write(store)
    store.delete(SHARD)
    (said,) = incomplete_checkpoints(store, PREFIX, KEY)
    assert "step 4 is listed, but" in said
    assert "g0001-r00000-0.safetensors" in said


def test_a_changed_byte_is_seen_once_all_is_read(store):
    write(store)
    data = bytearray(store.get(SHARD).data)
    data[-1] ^= 1
    store.put(SHARD, bytes(data))
    assert incomplete_checkpoints(store, PREFIX, KEY) == []
    assert "g0001-r00000-0.safetensors" in invalid_checkpoints(store, PREFIX, KEY)[0]


def test_files_without_a_manifest_are_no_checkpoint_and_one_of_another_key_is_none_of_ours(store):
    write(store)
    assert len(incomplete_checkpoints(store, PREFIX, b"another")) == 1
    store.delete(f"{FOLDER}/manifest.json")
    assert incomplete_checkpoints(store, PREFIX, KEY) == []
