"""Shard manifests: the objects of the store that form a data set. The shards themselves are not read here."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from gangline.errors import IntegrityError
from gangline.spec.codec import from_plain
from gangline.spec.config.data_keys import DataAccess
from gangline.spec.config.problems import refusal
from gangline.spec.data_source import DataFile
from gangline.spec.globs import is_inside
from gangline.storage.objects.protocol import ObjectStore, get_bounded
from gangline.units import format_bytes

MOST_SHARDS = 100_000
MOST_MANIFEST_BYTES = 16 << 20
"""Limit of all manifests of a line together."""
_BLOB = re.compile(r"blobs/sha256/[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Shard:
    """A data file in a store, by the digest of its content."""

    key: str
    """`blobs/sha256/<digest>`; the content must have this digest."""
    size_bytes: int
    path: str | None = None
    """File name for the task; None: by its position in the manifest."""


def resolve_shards(manifests: Sequence[str], *, store: ObjectStore, access: DataAccess) -> list[DataFile]:
    """Files of the manifests, in their order: each is a JSON list of `{"key", "size_bytes", "path"?}`.

    A manifest may name any blob by its digest; `access` limits the manifests that a line may name.

    Args:
        manifests: Keys of the store.
        store: Has them.
        access: Keys that the line may name.

    Raises:
        ConfigError: A manifest is not allowed, missing, invalid or too large; two shards have one path; or there are
            too many shards.
    """
    files: dict[str, DataFile] = {}
    left = MOST_MANIFEST_BYTES
    for number, manifest in enumerate(manifests):
        access.demand_key(f"data.shards[{number}]", manifest)
        data = _fetch(store, manifest, most_bytes=left)
        left -= len(data)
        for place, shard in enumerate(_read(manifest, data)):
            name = shard.path or f"{number:03d}-{place:06d}"
            if name in files:
                raise refusal(
                    f"data.shards: {manifest}: wanted one shard for each path, found two for {name}; rename one"
                )
            files[name] = DataFile(path=f"shards/{name}", key=shard.key, size_bytes=shard.size_bytes)
        if len(files) > MOST_SHARDS:
            raise refusal(f"data.shards: {manifest}: wanted at most {MOST_SHARDS} shards, found more; make them larger")
    return list(files.values())


def _fetch(store: ObjectStore, manifest: str, *, most_bytes: int) -> bytes:
    try:
        blob = get_bounded(store, manifest, most_bytes=most_bytes)
    except IntegrityError as error:
        most = format_bytes(MOST_MANIFEST_BYTES)
        raise refusal(
            f"data.shards: {manifest}: wanted at most {most} of manifests together, found more; make shards larger"
        ) from error
    if blob is None:
        raise refusal(f"data.shards: wanted a manifest at {manifest}, found nothing; upload it first")
    return blob.data


def _read(manifest: str, data: bytes) -> list[Shard]:
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
