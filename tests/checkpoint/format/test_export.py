"""Exported files are what the safetensors package reads, whole or sharded."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch
from safetensors import safe_open
from tests.checkpoint.folders import KEY, write_checkpoint

import gangline.checkpoint.format
from gangline.checkpoint.format.export import export_model
from gangline.checkpoint.format.manifest import RefusedCheckpoint
from gangline.errors import ConfigError, StorageError

FORMAT = Path(gangline.checkpoint.format.__file__).parent
FOLDER = "p/step-00000001"


@pytest.fixture
def tensors(store):
    made = {
        "model/embed": torch.randn(6, 4),
        "model/head": torch.randn(4, 6).to(torch.bfloat16),
        "model/none": torch.empty(0),
        "model/seen": torch.tensor(7),
        "optim/embed/exp_avg": torch.randn(6, 4),
    }
    cuts = {
        "model/embed": [(0, (0, 0), (3, 4)), (1, (3, 0), (3, 4))],
        "model/head": [(1, (0, 3), (4, 3)), (0, (0, 0), (4, 3))],
    }
    write_checkpoint(store, FOLDER, made, cuts)
    return {name.removeprefix("model/"): each for name, each in made.items() if name.startswith("model/")}


def assert_equal(found, wanted):
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


def test_model_is_one_file_that_the_package_reads(store, tensors, tmp_path):
    [file] = export_model(store, FOLDER, KEY, tmp_path / "out", metadata={"run": "r1"})
    assert [each.name for each in (tmp_path / "out").iterdir()] == ["model.safetensors"] == [file.name]
    assert_equal(safetensors.torch.load_file(file), tensors)
    with safe_open(file, "pt") as opened:
        assert opened.metadata() == {"format": "pt", "run": "r1"}


def test_shards_and_their_index_hold_every_tensor_once(store, tensors, tmp_path):
    *shards, index = export_model(store, FOLDER, KEY, tmp_path, max_shard_bytes=100)
    assert [shard.name for shard in shards] == ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    plain = json.loads(index.read_bytes())
    assert plain["metadata"] == {"total_size": sum(each.nbytes for each in tensors.values())}
    found = {}
    for shard in shards:
        here = safetensors.torch.load_file(shard)
        assert {plain["weight_map"][name] for name in here} == {shard.name}
        found |= here
    assert_equal(found, tensors)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_torch_reads_the_shards_as_a_hugging_face_folder(store, tensors, tmp_path):
    import torch.distributed.checkpoint as dcp

    export_model(store, FOLDER, KEY, tmp_path, max_shard_bytes=100)
    found = {name: torch.zeros_like(each) for name, each in tensors.items() if each.numel()}
    dcp.load(found, storage_reader=dcp.HuggingFaceStorageReader(str(tmp_path)), no_dist=True)
    assert_equal(found, {name: each for name, each in tensors.items() if each.numel()})


def test_names_are_mapped_and_must_not_collide(store, tensors, tmp_path):
    [file] = export_model(store, FOLDER, KEY, tmp_path, names={"head": "lm_head.weight"})
    assert safetensors.torch.load_file(file).keys() == {"embed", "lm_head.weight", "none", "seen"}
    with pytest.raises(ConfigError, match="'embed'"):
        export_model(store, FOLDER, KEY, tmp_path, names={"head": "embed"})


def test_damaged_checkpoint_exports_nothing(store, tensors, tmp_path):
    key = f"{FOLDER}/g0001-r00001-0.safetensors"
    data = store.get(key).data
    store.put(key, data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(RefusedCheckpoint, match="r00001-0"):
        export_model(store, FOLDER, KEY, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_folder_that_cannot_be_written_is_store_trouble(store, tensors, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="cannot write the model"):
        export_model(store, FOLDER, KEY, tmp_path / "file")


def test_reading_side_needs_no_torch():
    modules = sorted(each.stem for each in FORMAT.glob("*.py"))
    assert len(modules) > 7
    code = f"import sys; from gangline.checkpoint.format import {', '.join(modules)}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
