"""`gangline data`: versions of data sets, made of files, of a source or of a run."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from gangline.cli.data_workspace import (
    data_folder,
    data_name,
    names_of_files,
    open_journal,
    resolved,
    say_made,
    site_sources,
    trusted_keys_of,
    verify_caches,
    warm_caches,
    who,
    write_signed,
)
from gangline.cli.options import HERE, JsonOption, RepoOption, SiteOption, command_group
from gangline.cli.output import answer, columns
from gangline.cli.view.data_view import DataProgress, difference_rows, summary_line, version_rows
from gangline.cli.workspace import open_workspace
from gangline.data.versions import VERSION, aliases_of, list_datasets, parse_reference, remove_dataset, set_alias
from gangline.errors import ConfigError, IntegrityError, StorageError, UsageError
from gangline.git.repository import commit_of_files
from gangline.line.record.dataset_uses import dataset_uses
from gangline.report.text import clean
from gangline.signing.keys import signing_key
from gangline.spec.dataset import DatasetOrigin
from gangline.units import counted

app = command_group("Make versions of data sets, and look after them; lines name them in data.shards.")

ReferenceArgument = Annotated[
    str, typer.Argument(help="Data set, as NAME, NAME@VERSION or NAME@ALIAS.", metavar="NAME[@VERSION]")
]
NameOption = Annotated[str, typer.Option("--name", help="Name of the data set.")]


@app.command()
def pack(
    files: Annotated[
        list[Path], typer.Argument(help="Files: .jsonl, .txt, .csv, .parquet, .arrow or .tar of samples.")
    ],
    *,
    name: NameOption,
    tokens: Annotated[
        int | None, typer.Option("--tokens", min=1, help="Cut texts into samples of so many tokens.")
    ] = None,
    tokenizer: Annotated[Path | None, typer.Option("--tokenizer", help="File tokenizer.json for --tokens.")] = None,
    column: Annotated[str, typer.Option("--column", help="Column of text for --tokens.")] = "text",
    end: Annotated[
        str | None, typer.Option("--end", help="Token after each text.", show_default="that of the tokenizer")
    ] = None,
    holdout: Annotated[float, typer.Option("--holdout", help="Share of the rows kept for evaluation, below 1.")] = 0.0,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Pack files into a version of a data set.

    The same files and options give the same version. Called again after a kill, continue where it stopped.
    """
    from gangline.data.pack import PackOptions, TextTokenizer
    from gangline.data.pack import pack as pack_files

    if (tokens is None) != (tokenizer is None):
        raise UsageError("wanted --tokens and --tokenizer together, found one of them")
    if not 0 <= holdout < 1:
        raise UsageError(f"--holdout: wanted a share from 0 to below 1, found {holdout}")
    if folder := next((path for path in files if path.is_dir()), None):
        raise UsageError(f"wanted files, found the folder {folder}; name what is in it, such as {folder}/*.parquet")
    if missing := [str(path) for path in files if not path.is_file()]:
        raise UsageError(f"wanted files, found none at {', '.join(missing[:5])}")
    workspace = open_workspace(repo, site)
    paths = sorted({path.resolve() for path in files})
    opened = TextTokenizer.open(tokenizer, end) if tokenizer is not None else None
    options = PackOptions(tokens=tokens, tokenizer=opened, column=column, holdout=holdout)
    origin = DatasetOrigin(files=names_of_files(paths, workspace.repo), commit=commit_of_files(workspace.repo, paths))
    facts = [(str(path), (status := path.stat()).st_size, status.st_mtime_ns) for path in paths]
    with (
        open_journal(workspace, "pack", [name, options.plain(), facts]) as journal,
        DataProgress("pack", json) as progress,
    ):
        made = pack_files(
            paths, options, name=data_name(name), origin=origin, store=workspace.store, journal=journal,
            notify=progress.packed,
        )  # fmt: skip
        write_signed(workspace, made)
        journal.remove()
    say_made(made, json=json)


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="Name of the data set.")],
    *,
    from_: Annotated[
        str,
        typer.Option("--from", metavar="SOURCE:GLOB", help="Source of site.toml and files of it: hdfs:wiki/*.arrow."),
    ],
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Leave the bytes at the source; only digests are stored.")
    ] = False,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Make a version of files of a source.

    Each is read whole and checked. Arrow files without compression are taken as they are; Parquet, JSON lines and
    others are converted. Called again after a kill, continue where it stopped.
    """
    from gangline.data.added import AddedFile, add_files

    workspace = open_workspace(repo, site)
    source_name, colon, pattern = from_.partition(":")
    pattern = pattern.lstrip("/")
    if not colon or not pattern:
        raise UsageError(f"--from: wanted SOURCE:GLOB, such as hdfs:wiki/*.arrow, found {from_!r}")
    source = site_sources(workspace)(source_name)
    source_files = source.find(pattern)
    if not source_files:
        raise ConfigError(
            f"source.{source_name}: wanted files that match {pattern!r} below"
            f" {workspace.site.source[source_name].url}, found none"
        )
    files = [
        AddedFile(path=file.path, size_bytes=file.size_bytes, blocks=partial(source.blocks, file.path))
        for file in source_files
    ]
    origin = DatasetOrigin(source=source_name, path=pattern)
    url = workspace.site.source[source_name].url
    facts = [name, source_name, url, in_place, [(file.path, file.size_bytes) for file in source_files]]
    with open_journal(workspace, "add", facts) as journal, DataProgress("add", json) as progress:
        made = add_files(
            files, name=data_name(name), origin=origin, store=workspace.store, journal=journal,
            folder=data_folder(workspace), in_place=source_name if in_place else None, notify=progress.added,
        )  # fmt: skip
        write_signed(workspace, made)
        journal.remove()
    say_made(made, json=json)


@app.command("list")
def list_command(
    name: Annotated[str | None, typer.Argument(help="Data set.", show_default="all of them")] = None,
    *,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """List versions, newest first, with their aliases."""
    workspace = open_workspace(repo, site)
    trusted = trusted_keys_of(workspace)
    entries = list_datasets(workspace.store, None if name is None else data_name(name))
    names = dict.fromkeys(entry.name for entry in entries)
    aliases = {each: aliases_of(workspace.store, each, trusted) for each in names}
    rows = [version_rows(workspace.store, entry, aliases[entry.name], trusted) for entry in entries]
    table = columns([("VERSION", "ALIASES", "SAMPLES", "SHARDS", "SIZE", "WRITTEN", ""), *(row.cells for row in rows)])
    answer(rows, table if rows else "no data sets yet; gangline data pack FILES --name NAME makes one", json=json)


@app.command()
def show(
    reference: ReferenceArgument,
    other: Annotated[str | None, typer.Argument(help="Another version, to list what differs.")] = None,
    *,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Show a version and who used it; of two, what differs.

    Prints its columns, options and origin, and the runs and models that used it.
    """
    workspace = open_workspace(repo, site)
    dataset = resolved(workspace, reference)
    if other is not None:
        rows = difference_rows(dataset, resolved(workspace, other))
        plain = [dict(zip(("name", "first", "second"), row, strict=True)) for row in rows]
        answer(plain, columns(rows) if rows else "no difference: one version", json=json)
        return
    _, users = dataset_uses(workspace.store, dataset.name, dataset.version)
    rows = [("column", name, kind) for name, kind in dataset.schema]
    rows += [("option", name, clean(str(value), 80)) for name, value in sorted(dataset.options.items())]
    used = f"used by {', '.join(users) if users else 'no run'}"
    document = {"version": dataset.version, "digest": dataset.digest, "document": dataset, "used_by": users}
    answer(document, "\n".join((summary_line(dataset), columns(rows), used)), json=json)


@app.command()
def verify(
    reference: Annotated[str | None, typer.Argument(help="Data set, as NAME or NAME@VERSION.")] = None,
    *,
    cache: Annotated[bool, typer.Option("--cache", help="Hash all files of this machine's cache instead.")] = False,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Read every shard and compare digests.

    Each is read where it lies, in the store or at its source. Exit 50 names those that differ.
    """
    from gangline.data.shard_reads import verify_shard

    workspace = open_workspace(repo, site)
    if cache == (reference is not None):
        raise UsageError("name a data set or say --cache, one of them")
    if reference is None:
        count, damaged = verify_caches(workspace)
        total, bad = count, [f"{each}: deleted, it had another digest" for each in damaged]
    else:
        made, bad = resolved(workspace, reference), []
        total, source_of = len(made.shards), site_sources(workspace)
        with DataProgress("verify", json) as progress:
            for number, shard in enumerate(made.shards, 1):
                try:
                    verify_shard(workspace.store, shard, source_of)
                except (IntegrityError, StorageError) as error:
                    bad.append(str(error))
                progress.added(number, total)
    if json or not bad:
        found = {"shards": total, "damaged": bad}
        answer(found, f"{counted(total, 'shard')} verified, each with its digest", json=json)
    if bad:
        raise IntegrityError("\n".join([*bad[:20], f"{len(bad)} of {total} shards are damaged or missing"]))


@app.command()
def warm(
    reference: ReferenceArgument, *, repo: RepoOption = HERE, site: SiteOption = None, json: JsonOption = False
) -> None:
    """Fetch all shards into the cache of this machine.

    [cache] of site.toml names its folder. Each shard is verified.
    """
    workspace = open_workspace(repo, site)
    made, caches = resolved(workspace, reference), warm_caches(workspace)
    with DataProgress("warm", json) as progress:
        for number, shard in enumerate(made.shards, 1):
            for cache in caches:
                cache.file(shard)
            for cache in caches:
                cache.close()
            progress.added(number, len(made.shards))
    result = {"version": f"{made.name}@{made.version}", "shards": len(made.shards)}
    answer(result, f"{summary_line(made)} · in {workspace.site.cache.path}", json=json)


@app.command()
def alias(
    reference: ReferenceArgument,
    name: Annotated[str, typer.Argument(help="Alias that is to name this version: stable.", metavar="ALIAS")],
    *,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Point an alias at a version.

    Lines that name the alias train on the version from their next run.
    """
    workspace = open_workspace(repo, site)
    made = resolved(workspace, reference)
    key = signing_key(workspace.site, workspace.environ)
    moved = set_alias(workspace.store, made, name, key, trusted_keys_of(workspace), who=who())
    before = f", before {moved.previous}" if moved.previous else ""
    text = f"{moved.name}@{moved.alias} is {moved.version}{before} · signed by {moved.key_id}"
    answer(moved, text, json=json)


@app.command()
def remove(
    reference: Annotated[str, typer.Argument(help="Version, as NAME@VERSION.", metavar="NAME@VERSION")],
    *,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Delete a version that nothing names.

    Exit 60 tells which runs, models or aliases name it. Its shards stay in the store.
    """
    workspace = open_workspace(repo, site)
    name, version = parse_reference(reference)
    if not VERSION.fullmatch(version):
        raise UsageError(f"wanted NAME@VERSION with the eight digits of one, found {reference!r}; gangline data list")
    made = resolved(workspace, reference)
    made_by, users = dataset_uses(workspace.store, name, version)
    remove_dataset(workspace.store, name, version, trusted_keys_of(workspace), users=[*made_by, *users])
    answer({"removed": f"{name}@{version}"}, f"removed {summary_line(made)}; its shards stay as blobs", json=json)
