"""`gangline score`: a published model answers a data set, whose outputs become another one."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer

from gangline.cli.data_workspace import data_name, resolved, say_made, trusted_keys_of, write_signed
from gangline.cli.options import HERE, JsonOption, RepoOption, SiteOption, TargetOption
from gangline.cli.terminal import say, spinner
from gangline.cli.view.data_view import DataProgress
from gangline.cli.workspace import Workspace, open_workspace
from gangline.errors import ConfigError, IntegrityError, UsageError
from gangline.line.gangs.score_gang import GangPlace, ScoreJob, run_score_gang
from gangline.line.record.store import read_record
from gangline.line.request.targets import with_target
from gangline.line.results.served_version import NamedVersion, fetch_verified, find_version, require_verified
from gangline.line.run.score import RunRanks, ScorePlace, Scoring, score
from gangline.registry.versions import Version
from gangline.signing.keys import signing_key
from gangline.spec.dataset import Dataset
from gangline.spec.gang.driver_orders import ScoreOrder
from gangline.spec.identity import score_id
from gangline.spec.plan import Device
from gangline.spec.record import Record
from gangline.train.model.published import read_config, require_handler

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
    ranks: Annotated[int, typer.Option("--ranks", min=1, help="Ranks of the gang; each scores whole shards.")] = 1,
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="Servers or pods that share the ranks evenly.")] = 1,
    device: Annotated[
        str | None,
        typer.Option(
            "--device", help="Device of the ranks: cpu or cuda.", show_default="that of the version's training"
        ),
    ] = None,
    rows: Annotated[
        int | None, typer.Option("--rows", min=1, help="Rows of one forward pass.", show_default="infer.batch, or 32")
    ] = None,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    target: TargetOption = None,
    json: JsonOption = False,
) -> None:
    """Let a version answer every row of a data set; called again after a kill, continue where it stopped."""
    if ranks % nodes:
        raise UsageError(f"--nodes: wanted a divisor of {ranks} ranks, found {nodes}")
    if device not in (None, *get_args(Device)):
        raise UsageError(f"--device: wanted {' or '.join(get_args(Device))}, found {device}")
    workspace = open_workspace(repo, site)
    workspace = replace(workspace, site=with_target(workspace.site, target))
    named, found, name = find_version(model, workspace.store), resolved(workspace, dataset), data_name(to)
    if name == found.name:
        raise ConfigError(f"--to: wanted another data set than {found.name}, whose rows are scored")
    with tempfile.TemporaryDirectory(prefix="gangline-score-") as place:
        folder = Path(place, "model")
        config = _verified_config(named, folder, workspace)
        order = ScoreOrder(
            columns=tuple(column for column, _ in found.schema), outputs=tuple(sorted(outputs or ())), shards=(),
            batch=rows or max(ROWS, int((config.get("infer") or {}).get("batch") or 1)),
        )  # fmt: skip
        record, identity = _record(workspace, named.version), _identity(named.version, config, order)
        planned = "cpu" if record.plan is None else record.plan.device
        job = ScoreJob(
            name=score_id(record.run.project, record.commit, [found.digest, *identity]), record=record, folder=folder,
            config=config, order=order, ranks=ranks, nodes=nodes,
            device=cast(Device, device or planned),
        )  # fmt: skip
        scoring = Scoring(
            dataset=found, model=f"{named.version.model} {named.version.version}", identity=identity, prefix=job.prefix
        )
        with DataProgress("score", json) as progress:
            ranks_of = _ranks(workspace, job, found)
            key = signing_key(workspace.site, workspace.environ)
            place_of = ScorePlace(store=workspace.store, key=key, trusted=trusted_keys_of(workspace))
            made = score(scoring, place_of, name, run=ranks_of, notify=progress.scored)
    write_signed(workspace, made)
    say_made(made, json=json)
    if not json:
        say(f"from {made.origin.model} and {made.origin.dataset}")


def _verified_config(named: NamedVersion, folder: Path, workspace: Workspace) -> dict[str, Any]:
    """Config of a version that can score, whose files lie in `folder` then."""
    with spinner("verifying"):
        checks = fetch_verified(named, folder, store=workspace.store, site=workspace.site, environ=workspace.environ)
    require_verified(f"{named.version.model} {named.version.version}", checks)
    config = read_config(folder)
    require_handler(folder, config)
    return config


def _record(workspace: Workspace, version: Version) -> Record:
    record = read_record(workspace.store, version.record)
    if record is None:
        raise IntegrityError(f"{version.model} {version.version}: wanted its record {version.record}, found none")
    return record


def _identity(version: Version, config: dict[str, Any], order: ScoreOrder) -> tuple[str, ...]:
    """What the bytes of an output depend on, except for its shard."""
    handler = str((config.get("infer") or {}).get("handler") or "")
    return (version.weights, str(config.get("code")), handler, str(order.batch), *order.outputs)


def _ranks(workspace: Workspace, job: ScoreJob, dataset: Dataset) -> RunRanks:
    place = GangPlace(
        store=workspace.store, repo=workspace.repo, site=workspace.site, environ=workspace.environ,
        say=partial(say, err=True),
    )  # fmt: skip

    def run(shards: Sequence[tuple[str, str]], tell: Callable[[str], object]) -> None:
        run_score_gang(replace(job, order=replace(job.order, shards=tuple(shards))), dataset, place, tell)

    return run
