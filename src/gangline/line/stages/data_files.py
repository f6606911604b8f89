"""Data of a line as they are now: files of the commit, of packages and of the store, by digest."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from gangline.data.resolve import ReadableFile, TextFile, data_source, resolve_shards, resolve_text
from gangline.git.repository import Repository
from gangline.line.stages.dataset_versions import DatasetAccess, dataset_source, names_datasets
from gangline.line.stages.tracked_files import NO_FILES, FetchedFiles
from gangline.spec.config.line import DataTable
from gangline.spec.data_source import DataSource
from gangline.storage.objects.protocol import ObjectStore

READ_AT_ONCE_BYTES = 64 * 1024 * 1024


def read_data(
    repository: Repository, tree: str, table: DataTable, *, store: ObjectStore, allowed: DatasetAccess,
    fetched: FetchedFiles = NO_FILES,
) -> tuple[list[TextFile], DataSource]:  # fmt: skip
    """Texts with their bytes, and all data with their digest; shards are not read.

    Args:
        repository: Has the commit.
        tree: Tree of the line's folder.
        table: What the line names.
        store: Has the blobs of `fetched`, shards, and texts by key.
        allowed: What the line may name.
        fetched: Files that DVC or Git LFS track.

    Raises:
        ConfigError: Data is missing, not allowed, or not that of `data.digest`.
        IntegrityError: No key that the site trusts signed a data set.
    """
    access = allowed.access
    if names_datasets(table):
        found = dataset_source(table, store=store, allowed=allowed, tracked=fetched.code)
        return [], replace(found, prefetch=table.prefetch)
    tracked = {**_tracked(repository, tree), **_fetched(fetched)} if table.text else {}
    texts = resolve_text(table.text, tracked=tracked, access=access, store=store) if table.text else []
    shards = resolve_shards(table.shards, store=store, access=access) if table.shards else []
    files = [*(text.entry for text in texts), *shards]
    source = data_source(files, holdout=table.holdout, demanded=table.digest, tracked=fetched.code)
    return texts, replace(source, prefetch=table.prefetch)


def _tracked(repository: Repository, tree: str) -> Mapping[str, ReadableFile | None]:
    """Every path of the commit; files of a small tree are read in one call, because calls of git cost most."""
    entries = repository.entries(tree)
    files = [entry for entry in entries if entry.is_file]
    links: dict[str, ReadableFile | None] = {entry.path: None for entry in entries if not entry.is_file}
    if sum(entry.size_bytes for entry in files) <= READ_AT_ONCE_BYTES:
        contents = repository.blobs([entry.blob for entry in files])
        contents_of = {entry.path: data for entry, data in zip(files, contents, strict=True)}
        return links | {
            path: ReadableFile(len(data), partial(contents_of.__getitem__, path)) for path, data in contents_of.items()
        }
    return links | {
        entry.path: ReadableFile(entry.size_bytes, partial(_read_one, repository, entry.blob)) for entry in files
    }


def _fetched(files: FetchedFiles) -> dict[str, ReadableFile]:
    """Files of `data.text` that are blobs already; they are never read here."""
    return {path: ReadableFile(file.size_bytes, bytes, file.key) for path, file in files.text.items()}


def _read_one(repository: Repository, blob: str) -> bytes:
    return next(repository.blobs([blob]))
