"""Streaming puts any chunking together again; a header that contradicts the index is refused."""

from hashlib import sha256

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.checkpoint.folders import KEY, write_checkpoint
from tests.checkpoint.format.test_index import grids

from gangline.checkpoint.format.folder import CheckpointFolder
from gangline.checkpoint.format.manifest import RefusedCheckpoint
from gangline.checkpoint.format.stored_tensors import compare, stored_digests, stream_tensor
from gangline.checkpoint.host_tensors import as_bytes

FOLDER = "p/step-00000001"


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(grids(), st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.bool]))
def test_any_chunking_streams_in_row_major_order(store, grid, dtype):
    shape, chunks = grid
    tensor = torch.randn(shape).mul(100).to(dtype)
    cuts = {"model/x": [(number % 3, chunk.offsets, chunk.sizes) for number, chunk in enumerate(chunks)]}
    write_checkpoint(store, FOLDER, {"model/x": tensor}, cuts)
    folder = CheckpointFolder.open(store, FOLDER, KEY)
    streamed = b"".join(stream_tensor(folder, "model/x", folder.index().tensors["model/x"]))
    assert streamed == bytes(as_bytes(tensor))


def test_digests_are_those_of_the_whole_tensors(store):
    tensors = {"model/a": torch.tensor(3.5), "model/b": torch.empty(0, 4), "optim/a/exp_avg": torch.ones(2, 2)}
    write_checkpoint(store, FOLDER, tensors)
    wanted = {name: sha256(as_bytes(tensor)).hexdigest() for name, tensor in tensors.items()}
    assert stored_digests(store, FOLDER, KEY, optimizer=True) == wanted
    assert stored_digests(store, FOLDER, KEY).keys() == {"model/a", "model/b"}


def test_comparison_counts_what_differs_or_is_missing():
    opened = {"model/a": "1", "model/b": "2", "model/c": "3"}
    verdict = compare(opened, {"model/a": "1", "model/b": "x", "model/d": "4"}, checkpoint="c")
    assert (verdict.total, verdict.equal) == (4, 1)
    assert verdict.different == ("model/b", "model/c", "model/d")


@pytest.mark.parametrize("header", ["other name", "other shape", "no header"])
def test_header_that_contradicts_the_index_is_refused(store, monkeypatch, header):
    lies = {
        "other name": lambda tensors, *_: original(dict.fromkeys(["model/y@0"], *tensors.values())),
        "other shape": lambda tensors, *_: original(dict.fromkeys(tensors, ("F32", (3, 1)))),
        "no header": lambda *_: (2**60).to_bytes(8, "little"),
    }
    import tests.checkpoint.folders as writing

    original = writing.header_bytes
    monkeypatch.setattr(writing, "header_bytes", lies[header])
    write_checkpoint(store, FOLDER, {"model/x": torch.ones(3)})
    with pytest.raises(RefusedCheckpoint, match=r"g0001-r00000-0\.safetensors"):
        stored_digests(store, FOLDER, KEY)
