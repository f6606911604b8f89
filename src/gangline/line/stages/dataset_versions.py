"""Data sets that a line names, resolved to the versions of now: signed by a trusted key, and open to this commit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gangline.data.versions import Trusted, dataset_use, parse_reference, resolve_dataset
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
    return bool(table.mix) or any(each.startswith(SCHEME) for each in table.shards)


def dataset_source(
    table: DataTable, *, store: ObjectStore, allowed: DatasetAccess, tracked: Sequence[DataFile] = ()
) -> DataSource:
    """Data of a plan that trains on versions of data sets, with the files that DVC or Git LFS track for its commit.

    Raises:
        ConfigError: There is no such version, this commit may not read it, or it is not that of data.digest.
        IntegrityError: No trusted key signed it.
    """
    named = [(f"data.shards[{index}]", each, None) for index, each in enumerate(table.shards)]
    mixed = [(f"data.mix[{index}].shards", each.shards, each.weight) for index, each in enumerate(table.mix)]
    trusted = allowed.trusted()
    uses = []
    for place, reference, weight in (*named, *mixed):
        allowed.access.demand_dataset(place, parse_reference(reference, place)[0])
        found = resolve_dataset(store, reference, trusted, place=place)
        _demand_readable(place, found, allowed)
        use = dataset_use(found)
        share = float(use.num_samples) if len(named) > 1 else 1.0
        uses.append(replace(use, weight=share if weight is None else weight))
    placed = tuple(sorted(tracked, key=lambda file: file.path))
    named_files = [(f"code/{each.path}", each.key, each.size_bytes) for each in placed]
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
