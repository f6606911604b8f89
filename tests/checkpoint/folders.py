"""Checkpoints written by hand: any chunking of any tensors, without torch's planning."""

from gangline.checkpoint.format.blocks import write_file
from gangline.checkpoint.format.commit import seal
from gangline.checkpoint.format.folder import CheckpointState
from gangline.checkpoint.format.index import Chunk, Index, StoredTensor, chunk_key
from gangline.checkpoint.format.manifest import Manifest
from gangline.checkpoint.format.safetensors import header_bytes
from gangline.checkpoint.host_tensors import NAMES, as_bytes
from gangline.spec.codec import canonical

KEY = b"hand"


def write_checkpoint(store, folder, tensors, cuts=None, *, step=1, generation=1):
    """`cuts[name]` are (file number, offsets, sizes) of the chunks; by default one chunk in file 0."""
    files, stored = {}, {}
    for name, tensor in tensors.items():
        chunks = (cuts or {}).get(name) or [(0, (0,) * tensor.dim(), tuple(tensor.shape))]
        for number, offsets, sizes in chunks:
            box = tensor[tuple(slice(o, o + s) for o, s in zip(offsets, sizes, strict=True))]
            files.setdefault(number, {})[chunk_key(name, offsets)] = box.contiguous()
        stored[name] = StoredTensor(
            dtype=NAMES[tensor.dtype],
            shape=tuple(tensor.shape),
            chunks=tuple(Chunk(file=_file(generation, n), offsets=o, sizes=s) for n, o, s in chunks),
        )
    entries = {
        _file(generation, number): write_file(store, f"{folder}/{_file(generation, number)}", _pieces(parts))
        for number, parts in files.items()
    }
    head = f"g{generation:04d}"
    for name, value in (
        (f"{head}-index.json", Index(tensors=stored)),
        (f"{head}-state.json", CheckpointState(step=step)),
    ):
        entries[name] = write_file(store, f"{folder}/{name}", [canonical(value)])
    manifest = Manifest(run="r", step=step, generation=generation, plan_sha256="d", files=entries)
    seal(store, folder, manifest, KEY)
    return manifest


def _file(generation, number):
    return f"g{generation:04d}-r{number:05d}-0.safetensors"


def _pieces(parts):
    yield header_bytes({key: (NAMES[each.dtype], each.shape) for key, each in parts.items()})
    yield from (as_bytes(each) for each in parts.values())
