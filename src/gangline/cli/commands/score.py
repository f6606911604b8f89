"""`gangline score`: a published model answers a data set, whose outputs become another one."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from gangline.cli.data_workspace import (
    data_name,
    resolved,
    say_made,
    site_sources,
    trusted_keys_of,
    who,
)
from gangline.cli.options import HERE, JsonOption, RepoOption, SiteOption
from gangline.cli.terminal import say, spinner
from gangline.cli.view.data_view import DataProgress
from gangline.cli.workspace import Workspace, open_workspace
from gangline.errors import ConfigError
from gangline.line.gangs.podsets import commits_python
from gangline.line.gangs.score_workers import ScoreJob
from gangline.line.record.store import read_record
from gangline.line.results.served_version import code_layer, fetch_verified, find_version, require_verified
from gangline.line.run.score import ScorePlace, Scoring, score
from gangline.registry.versions import Version
from gangline.signing.keys import signing_key
from gangline.spec.dataset import Dataset
from gangline.train.model.published import PROGRAM_FORMAT, read_config, without_handler

ROWS = 32
"""Rows of one forward pass, where `infer.batch` of the version is smaller."""


def command(
    model: Annotated[str, typer.Argument(help="MODEL, MODEL@ALIAS or MODEL/VERSION.")],
    dataset: Annotated[str, typer.Argument(help="Data set as dataset:NAME, with @VERSION or @ALIAS.")],
    *,
    to: Annotated[str, typer.Option("--to", metavar="NAME", help="Data set that the outputs become a version of.")],
    outputs: Annotated[
        list[str] | None, typer.Option("--output", metavar="NAME", help="Output to keep; all without it.")
    ] = None,
    processes: Annotated[int, typer.Option("--processes", min=1, max=64, help="Shards that are scored at once.")] = 1,
    rows: Annotated[
        int | None, typer.Option("--rows", min=1, help="Rows of one forward pass.", show_default="infer.batch, or 32")
    ] = None,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Let a version answer every row of a data set; called again after a kill, continue where it stopped."""
    workspace = open_workspace(repo, site)
    named, found, name = find_version(model, workspace.store), resolved(workspace, dataset), data_name(to)
    if name == found.name:
        raise ConfigError(f"--to: wanted another data set than {found.name}, whose rows are scored")
    version = named.version
    with tempfile.TemporaryDirectory(prefix="gangline-score-") as place:
        folder = Path(place, "model")
        with spinner("verifying"):
            checks = fetch_verified(
                named, folder, store=workspace.store, site=workspace.site, environ=workspace.environ
            )
        require_verified(f"{version.model} {version.version}", checks)
        scoring = _scoring(workspace, version, folder, found, outputs=tuple(outputs or ()), rows=rows)
        with DataProgress("score", json) as progress:
            made = score(scoring, _place(workspace), name, processes=processes, notify=progress.scored)
    _write(workspace, made)
    say_made(made, json=json)
    if not json:
        say(f"from {made.origin.model} and {made.origin.dataset}")


def _scoring(
    workspace: Workspace, version: Version, folder: Path, dataset: Dataset, *, outputs: tuple[str, ...],
    rows: int | None,
) -> Scoring:  # fmt: skip
    config = read_config(folder)
    infer = config.get("infer") or {}
    if config.get("format") == PROGRAM_FORMAT and not infer.get("handler"):
        raise ConfigError(without_handler(folder))
    record = read_record(workspace.store, version.record)
    batch = rows or max(ROWS, int(infer.get("batch") or 1))
    job = ScoreJob(
        folder=folder, code=code_layer(folder, workspace.store),
        python=None if record is None else commits_python(record),
        columns=tuple(column for column, _ in dataset.schema), batch=batch, outputs=tuple(sorted(outputs)), env={},
    )  # fmt: skip
    identity = (version.weights, str(config.get("code")), str(infer.get("handler") or ""), str(batch), *job.outputs)
    return Scoring(dataset=dataset, model=f"{version.model} {version.version}", identity=identity, job=job)


def _place(workspace: Workspace) -> ScorePlace:
    return ScorePlace(
        store=workspace.store, repo=workspace.repo, site=workspace.site, environ=workspace.environ,
        key=signing_key(workspace.site, workspace.environ), trusted=trusted_keys_of(workspace),
        source_of=site_sources(workspace),
    )  # fmt: skip


def _write(workspace: Workspace, made: Dataset) -> None:
    """Sign and write the document, the last of a version, and let `latest` name it."""
    from gangline.data.versions import LATEST, set_alias, write_dataset

    key, trusted = signing_key(workspace.site, workspace.environ), trusted_keys_of(workspace)
    write_dataset(workspace.store, made, key, trusted)
    set_alias(workspace.store, made, LATEST, key, trusted, who=who())
