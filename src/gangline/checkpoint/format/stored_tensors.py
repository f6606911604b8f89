"""Full tensors streamed from a checkpoint's chunks in row-major order, whatever plan wrote them. No torch.

`state.tensor_digests` hashes the tensors that a plan opened; this module hashes those in the store.
"""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from itertools import pairwise, product
from math import prod

from gangline.checkpoint.format.folder import CheckpointFolder
from gangline.checkpoint.format.index import MODEL, OPTIMIZER, Chunk, StoredTensor
from gangline.checkpoint.format.safetensors import ITEM_BYTES
from gangline.spec.gang.status import TensorDigests
from gangline.storage.objects.protocol import ObjectStore


def stored_digests(
    store: ObjectStore, checkpoint_prefix: str, key: bytes, *, optimizer: bool = False
) -> dict[str, str]:
    """SHA-256 of each full tensor's bytes: `model/<name>`, with `optimizer` also `optim/<name>/<state>`."""
    folder = CheckpointFolder.open(store, checkpoint_prefix, key)
    tensors = folder.index().tensors
    heads = (MODEL, OPTIMIZER) if optimizer else (MODEL,)
    names = sorted(name for name in tensors if name.startswith(heads))
    return {name: _digest(stream_tensor(folder, name, tensors[name])) for name in names}


def compare(opened: Mapping[str, str], stored: Mapping[str, str], *, checkpoint: str) -> TensorDigests:
    """Count the digests that agree; a name that only one side has counts as different."""
    names = sorted(opened.keys() | stored.keys())
    different = [name for name in names if opened.get(name) != stored.get(name)]
    return TensorDigests(
        checkpoint=checkpoint, total=len(names), equal=len(names) - len(different), different=tuple(different[:10])
    )


def stream_tensor(folder: CheckpointFolder, name: str, tensor: StoredTensor) -> Iterator[memoryview]:
    """Row-major bytes of a whole tensor, verified; each piece is valid until the next one is requested.

    A tensor split along its first dim is read a block at a time; one split along other dims is assembled a band of rows
    at a time.
    """
    chunks = [chunk for chunk in tensor.chunks if prod(chunk.sizes)]
    if not tensor.shape or not chunks:
        for chunk in chunks:
            yield from _chunk_rows(folder, name, tensor, chunk, None)
        return
    edges = sorted({edge for c in chunks for edge in (c.offsets[0], c.offsets[0] + c.sizes[0])})
    for start, end in pairwise(edges):
        inside = [c for c in chunks if c.offsets[0] <= start and end <= c.offsets[0] + c.sizes[0]]
        if len(inside) == 1:
            yield from _chunk_rows(folder, name, tensor, inside[0], (start, end))
        else:
            yield memoryview(_band(folder, name, tensor, inside, (start, end)))


def _digest(pieces: Iterator[memoryview]) -> str:
    whole = sha256()
    for piece in pieces:
        whole.update(piece)
    return whole.hexdigest()


def _chunk_rows(
    folder: CheckpointFolder, name: str, tensor: StoredTensor, chunk: Chunk, rows: tuple[int, int] | None
) -> Iterator[memoryview]:
    """Bytes of the rows of `chunk` that lie between `rows` of the tensor; None: all of them."""
    entry = folder.locate(name, tensor, chunk)
    first, last = (0, 1) if rows is None else (rows[0] - chunk.offsets[0], rows[1] - chunk.offsets[0])
    row_bytes = entry.size_bytes // (chunk.sizes[0] if chunk.sizes else 1)
    yield from folder.file(chunk.file).pieces(entry.start + first * row_bytes, (last - first) * row_bytes)


def _band(
    folder: CheckpointFolder, name: str, tensor: StoredTensor, chunks: list[Chunk], rows: tuple[int, int]
) -> bytearray:
    """Rows `rows` of the tensor, from chunks that each hold a part of every row."""
    item = ITEM_BYTES[tensor.dtype]
    whole = (rows[1] - rows[0], *tensor.shape[1:])
    band = bytearray(prod(whole) * item)
    for chunk in chunks:
        data = b"".join(bytes(piece) for piece in _chunk_rows(folder, name, tensor, chunk, rows))
        sizes, offsets = (whole[0], *chunk.sizes[1:]), (0, *chunk.offsets[1:])
        _paste(band, whole, data, sizes, offsets, item)
    return band


def _paste(  # noqa: PLR0917 - two boxes, each with its geometry
    band: bytearray, whole: tuple[int, ...], data: bytes, sizes: tuple[int, ...], offsets: tuple[int, ...], item: int
) -> None:
    """Copy the dense box `data` of `sizes` to `offsets` of the dense `whole`, a run of the last dim at a time."""
    strides = [prod(whole[dim + 1 :]) for dim in range(len(whole))]
    run = sizes[-1] * item
    for number, place in enumerate(product(*(range(size) for size in sizes[:-1]))):
        corner = sum((o + p) * s for o, p, s in zip(offsets, (*place, 0), strides, strict=True))
        band[corner * item : corner * item + run] = data[number * run : (number + 1) * run]
