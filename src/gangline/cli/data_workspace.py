"""What the commands of `gangline data` share: journals, signing, sources and the cache of a site."""

import getpass
import socket
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline.cli.output import answer
from gangline.cli.view.data_view import summary_line
from gangline.cli.workspace import Workspace
from gangline.data.versions import LATEST, Trusted, resolve_dataset, set_alias, write_dataset
from gangline.errors import ConfigError, UsageError, storage_errors
from gangline.signing.keys import signing_key
from gangline.signing.record_seal import Sealer
from gangline.spec.codec import digest
from gangline.spec.config.data_keys import SCHEME
from gangline.spec.config.load import load_line
from gangline.spec.dataset import NAME, Dataset
from gangline.spec.gang.driver_orders import CACHES, cache_folder
from gangline.storage import site_paths

if TYPE_CHECKING:
    from gangline.data.cache import ShardCache
    from gangline.data.journal import PackJournal
    from gangline.data.sources import Source


def data_name(name: str) -> str:
    """The name of a data set alone."""
    found = name.removeprefix(SCHEME)
    if not NAME.fullmatch(found):
        raise UsageError(
            f"wanted a name of a data set, at most 40 of a-z, 0-9 and - with a letter first, found {name!r}; wiki works"
        )
    return found


def resolved(workspace: Workspace, reference: str) -> Dataset:
    """The version that a reference names; exit 10 where there is none."""
    return resolve_dataset(workspace.store, reference, trusted_keys_of(workspace))


def trusted_keys_of(workspace: Workspace) -> Trusted:
    """Public keys whose signatures count at this site."""
    return Sealer.of(workspace.site, workspace.environ).trusted


def who() -> str:
    """`USER@HOST`, for the record of who changed an alias."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


def data_folder(workspace: Workspace) -> Path:
    """Folder of journals and of files that are being read, in `.gangline`."""
    folder = site_paths.home(workspace.repo) / "data"
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def open_journal(workspace: Workspace, command: str, facts: list[Any]) -> "AbstractContextManager[PackJournal]":
    """Journal of a call with these inputs, in the folder `.gangline`."""
    from gangline.data.journal import PackJournal

    return PackJournal.alone(data_folder(workspace) / f"{command}-{digest(facts)[:16]}.jsonl")


def names_of_files(paths: Sequence[Path], repo: Path) -> tuple[str, ...]:
    """Paths inside the repository, or the names of files elsewhere: a version is the same on another machine."""
    return tuple(path.relative_to(repo).as_posix() if path.is_relative_to(repo) else path.name for path in paths)


def write_signed(workspace: Workspace, made: Dataset) -> None:
    """Sign and write a version, and let the alias `latest` name it."""
    key, trusted = signing_key(workspace.site, workspace.environ), trusted_keys_of(workspace)
    write_dataset(workspace.store, made, key, trusted)
    set_alias(workspace.store, made, LATEST, key, trusted, who=who())


def say_made(made: Dataset, *, json: bool) -> None:
    """Print a version that was made."""
    size = sum(shard.size_bytes for shard in made.shards)
    facts = {"digest": made.digest, "samples": made.num_samples, "shards": len(made.shards), "size_bytes": size}
    answer({"version": f"{made.name}@{made.version}", **facts}, summary_line(made), json=json)


def site_sources(workspace: Workspace) -> "Callable[[str], Source]":
    """Opens sources of the site by name, each once."""
    from gangline.data.sources import open_source

    opened: dict[str, Source] = {}

    def source_of(name: str) -> "Source":
        table = workspace.site.source.get(name)
        if table is None:
            known = ", ".join(workspace.site.source) or "none"
            raise ConfigError(f"wanted [source.{name}] in site.toml, found {known}; add it with its url")
        if name not in opened:
            opened[name] = open_source(name, table, workspace.environ)
        return opened[name]

    return source_of


def warm_caches(workspace: Workspace) -> "list[ShardCache]":
    """Caches of this project on this machine: that of runs that may publish, and that of all others, a copy of it."""
    from gangline.data.cache import ShardCache
    from gangline.data.shard_reads import shard_blocks

    table, source_of = workspace.site.cache, site_sources(workspace)
    project = load_line(workspace.repo / "line.toml").project.name
    published, other = (Path(cache_folder(_cache_path(workspace), project, published=each)) for each in (True, False))
    first = ShardCache(published, table.bytes, lambda shard: shard_blocks(workspace.store, shard, source_of))
    return [first, ShardCache(other, table.bytes, lambda shard: iter([first.file(shard).read_bytes()]))]


def verify_caches(workspace: Workspace) -> tuple[int, list[str]]:
    """Hash the shards in all caches of this machine, delete those with another digest: their number, the deleted."""
    from gangline.data.cache import ShardCache

    total, deleted = 0, list[str]()
    for folder in sorted(Path(_cache_path(workspace), CACHES).glob("*")):
        count, wrong = ShardCache(folder, None, lambda _: iter(())).verify()
        total, deleted = total + count, deleted + [f"{folder.name}/{each}" for each in wrong]
    return total, deleted


def _cache_path(workspace: Workspace) -> str:
    if workspace.site.cache.path is None:
        raise ConfigError('wanted path in [cache] of site.toml, found none; path = "/nvme/gangline" works')
    return workspace.site.cache.path
