"""Data of a line as they are now: files of the commit, of packages and of the store, by digest.

Data sets are resolved to the versions of now: signed by a trusted key, and open to this commit.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from gangline.data.resolve import ReadableFile, TextFile, data_source, resolve_shards, resolve_text
from gangline.data.versions import Trusted, dataset_use, parse_reference, resolve_dataset
from gangline.git.repository import Repository
from gangline.line.stages.tracked_files import NO_FILES, FetchedFiles
from gangline.spec.codec import digest
from gangline.spec.config.data_keys import SCHEME, DataAccess
from gangline.spec.config.line import DataTable
from gangline.spec.config.problems import refusal
from gangline.spec.config.site import Site
from gangline.spec.data_source import DataFile, DatasetUse, DataSource
from gangline.spec.dataset import Dataset
from gangline.storage.objects.protocol import ObjectStore
from gangline.units import format_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetAccess:
    """What a commit may use of the data sets of a site."""

    access: DataAccess
    site: Site
    trusted: Callable[[], Trusted]
    """Public keys of the site, read where a line names a data set."""


def names_datasets(table: DataTable) -> bool:
    """Whether a line trains on versions of data sets."""
    return bool(table.mix) or any(shard.startswith(SCHEME) for shard in table.shards)


def dataset_source(
    table: DataTable, *, store: ObjectStore, allowed: DatasetAccess, tracked: Sequence[DataFile] = ()
) -> DataSource:
    """Data of a plan that trains on versions of data sets, with the files that DVC or Git LFS track for its commit.

    Raises:
        ConfigError: There is no such version, this commit may not read it, or it is not that of data.digest.
        IntegrityError: No trusted key signed it.
    """
    named = [(f"data.shards[{index}]", shard, None) for index, shard in enumerate(table.shards)]
    mixed = [
        (f"data.mix[{index}].shards", mix_table.shards, mix_table.weight) for index, mix_table in enumerate(table.mix)
    ]
    trusted = allowed.trusted()
    uses = []
    for place, reference, weight in (*named, *mixed):
        allowed.access.demand_dataset(place, parse_reference(reference, place)[0])
        dataset = resolve_dataset(store, reference, trusted, place=place)
        _demand_readable(place, dataset, allowed)
        use = dataset_use(dataset)
        share = float(use.num_samples) if len(named) > 1 else 1.0
        uses.append(replace(use, weight=share if weight is None else weight))
    placed = tuple(sorted(tracked, key=lambda file: file.path))
    named_files = [(f"code/{data_file.path}", data_file.key, data_file.size_bytes) for data_file in placed]
    total = digest([*((use.name, use.digest, use.weight) for use in uses), *named_files])
    if table.digest is not None and table.digest != total:
        raise refusal(
            f"data.digest: wanted {table.digest}, found {total} of {versions_text(uses)}; name that version, or set"
            " this digest"
        )
    return DataSource(
        digest=total, holdout=table.holdout, sets=tuple(uses), order="window" if table.order == "auto" else table.order,
        window=table.window, parts=table.parts, tracked=placed,
    )  # fmt: skip


def versions_text(uses: "list[DatasetUse] | tuple[DatasetUse, ...]") -> str:
    """`wiki@3f2a91c4, 12,410,332 samples, 26.1 GB`."""
    return "; ".join(
        f"{each.name}@{each.version}, {each.num_samples:,} samples, {format_bytes(each.size_bytes)}" for each in uses
    )


def _demand_readable(place: str, dataset: Dataset, allowed: DatasetAccess) -> None:
    """Raises ConfigError for shards that stay in a source which gangs of this commit do not read."""
    for name in sorted({shard.source for shard in dataset.shards if shard.source is not None}):
        table = allowed.site.source.get(name)
        wanted = f"{place}: {dataset.name}@{dataset.version} lies in source.{name}: wanted"
        if allowed.access.project is None:
            raise refusal(
                f"{wanted} shards in the store for a fork's commit, which reads no source; add it without --in-place"
            )
        if table is None:
            raise refusal(f"{wanted} that source, found none of this name in site.toml; add [source.{name}]")
        if not table.ranks:
            raise refusal(
                f"{wanted} source.{name}.ranks = true in site.toml, found false; or add it without --in-place"
            )


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
