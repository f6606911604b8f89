"""Export of a checkpoint's model as plain safetensors files: streamed, verified, without torch.

Names are those of the model, or of `names`; shards and index are laid out as other tools expect them.
"""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from gangline.checkpoint.format.folder import CheckpointFolder
from gangline.checkpoint.format.index import MODEL, StoredTensor
from gangline.checkpoint.format.safetensors import header_bytes
from gangline.checkpoint.format.stored_tensors import stream_tensor
from gangline.errors import ConfigError, StorageError
from gangline.storage.folder.durable_files import make_folders, publish
from gangline.storage.objects.protocol import ObjectStore

MAX_SHARD_BYTES = 5_000_000_000
INDEX = "model.safetensors.index.json"

_Shard = dict[str, StoredTensor]
"""Tensors of one file, by their name in the checkpoint."""


def export_model(
    store: ObjectStore, checkpoint_prefix: str, key: bytes, out_dir: Path, *,
    sha256: str | None = None, metadata: Mapping[str, str] | None = None, names: Mapping[str, str] | None = None,
    max_shard_bytes: int = MAX_SHARD_BYTES,
) -> list[Path]:  # fmt: skip
    """Write `model.safetensors`, or shards and their index, to `out_dir`; every file is whole or not there.

    Args:
        checkpoint_prefix: Folder of the checkpoint, `.../step-00000200`.
        sha256: Of its manifest, if a record names it.
        metadata: Strings for the files' headers.
        names: Name in the model -> name in the files; the others keep theirs.
        max_shard_bytes: Of tensor data in one file; a tensor that is larger has a file of its own.

    Returns:
        The files written, the index last.

    Raises:
        RefusedCheckpoint: A file of the checkpoint is damaged.
        ConfigError: `names` gives two tensors the same name.
        StorageError: `out_dir` cannot be written.
    """
    folder = CheckpointFolder.open(store, checkpoint_prefix, key, sha256=sha256)
    tensors = {name: tensor for name, tensor in sorted(folder.index().tensors.items()) if name.startswith(MODEL)}
    renamed = _rename(tensors, names or {})
    shards = list(_shards(tensors, max_shard_bytes))
    header = {"format": "pt"} | dict(metadata or {})
    files = []
    try:
        for number, shard in enumerate(shards, start=1):
            file = out_dir / _shard_name(number, len(shards))
            _write(file, _pieces(folder, shard, renamed, header))
            files.append(file)
        if len(shards) > 1:
            files.append(out_dir / INDEX)
            _write(files[-1], iter([_index(shards, renamed)]))
    except OSError as error:
        raise StorageError(
            f"cannot write the model to {out_dir}: {error}; free space or take another folder"
        ) from error
    return files


def _rename(tensors: _Shard, names: Mapping[str, str]) -> dict[str, str]:
    renamed = {name: names.get(name.removeprefix(MODEL), name.removeprefix(MODEL)) for name in tensors}
    if len(set(renamed.values())) != len(renamed):
        twice = sorted(name for name in renamed.values() if list(renamed.values()).count(name) > 1)
        raise ConfigError(f"export names give several tensors the name {twice[0]!r}; each needs its own")
    return renamed


def _shards(tensors: _Shard, max_bytes: int) -> Iterator[_Shard]:
    shard: _Shard = {}
    room = max_bytes
    for name, tensor in tensors.items():
        if shard and tensor.size_bytes > room:
            yield shard
            shard, room = {}, max_bytes
        shard[name] = tensor
        room -= tensor.size_bytes
    yield shard


def _shard_name(number: int, total: int) -> str:
    return "model.safetensors" if total == 1 else f"model-{number:05d}-of-{total:05d}.safetensors"


def _pieces(
    folder: CheckpointFolder, shard: _Shard, renamed: Mapping[str, str], metadata: Mapping[str, str]
) -> Iterator[bytes | memoryview]:
    yield header_bytes(
        {renamed[name]: (stored_tensor.dtype, stored_tensor.shape) for name, stored_tensor in shard.items()}, metadata
    )
    for name, tensor in shard.items():
        yield from stream_tensor(folder, name, tensor)


def _index(shards: list[_Shard], renamed: Mapping[str, str]) -> bytes:
    places = {
        renamed[name]: _shard_name(number, len(shards)) for number, shard in enumerate(shards, 1) for name in shard
    }
    total = sum(tensor.size_bytes for shard in shards for tensor in shard.values())
    return json.dumps({"metadata": {"total_size": total}, "weight_map": places}, indent=2, sort_keys=True).encode()


def _write(target: Path, pieces: Iterator[bytes | memoryview]) -> None:
    make_folders(target.parent)
    staged = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with staged.open("wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        publish(staged, target, replace=True)
    finally:
        staged.unlink(missing_ok=True)
