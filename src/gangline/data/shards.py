"""Shard manifests: which objects of the store a data set is made of. The shards themselves are not read here."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gangline.errors import IntegrityError
from gangline.spec.codec import from_plain
from gangline.spec.grammar import is_inside
from gangline.spec.plan import DataFile
from gangline.spec.problems import refusal

_BLOB = re.compile(r"blobs/sha256/[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Shard:
    key: str
    """`blobs/sha256/<digest>`: the key says what the content must be."""
    size_bytes: int
    path: str | None = None
    """Name for the task; None: the place in the manifest."""


def resolve_shards(manifests: Sequence[str], *, stored: Callable[[str], bytes | None]) -> list[DataFile]:
    """Files of the manifests, in their order: each is a JSON list of `{"key", "size_bytes", "path"?}`.

    Args:
        manifests: Keys of the store.
        stored: Object of the store by key; None where there is none.

    Raises:
        ConfigError: A manifest that is not there, or does not say what it must; a path that two shards claim.
    """
    files: dict[str, DataFile] = {}
    for number, manifest in enumerate(manifests):
        for place, shard in enumerate(_read(manifest, stored(manifest))):
            name = shard.path or f"{number:03d}-{place:06d}"
            if name in files:
                raise refusal(f"data.shards: {manifest}: wanted one shard a path, found two for {name}; rename one")
            files[name] = DataFile(path=f"shards/{name}", key=shard.key, size_bytes=shard.size_bytes)
    return list(files.values())


def _read(manifest: str, data: bytes | None) -> list[Shard]:
    if data is None:
        raise refusal(f"data.shards: wanted a manifest at {manifest}, found nothing; upload it first")
    try:
        plain = json.loads(data)
        shards = [from_plain(Shard, each) for each in plain] if isinstance(plain, list) else []
    except (ValueError, RecursionError, IntegrityError) as error:
        raise refusal(f'data.shards: {manifest}: wanted a list of {{"key", "size_bytes"}}: {error}') from error
    if not shards:
        raise refusal(f"data.shards: {manifest}: wanted a JSON list of shards, found none in it")
    for shard in shards:
        _check(manifest, shard)
    return shards


def _check(manifest: str, shard: Shard) -> None:
    if not _BLOB.fullmatch(shard.key) or shard.size_bytes < 0:
        found = f"{shard.key[:90]} of {shard.size_bytes} bytes"
        raise refusal(f"data.shards: {manifest}: wanted blobs/sha256/<digest> with its size, found {found}")
    if shard.path is not None and not is_inside(shard.path):
        raise refusal(f"data.shards: {manifest}: wanted a path that stays inside, found {shard.path[:90]!r}")
