"""A run on a pipelines server: compiled, kept in the store, uploaded, started or found, and waited for.

The record says how the run ended; the server is asked whether its pipeline still goes on. Called again, everything is
found by name.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gangline.errors import CancelledError, ConfigError, TrainingError, UsageError
from gangline.line.git import Repository
from gangline.line.kfp.client import Client, PipelineRun
from gangline.line.kfp.compile import compile_run
from gangline.line.kfp.config import TaskConfig
from gangline.line.kfp.history import keep_history
from gangline.line.kfp.last_words import last_words
from gangline.line.kfp.names import experiment_name, link, run_name, run_of_link, version_name
from gangline.line.kfp.secrets import for_tasks
from gangline.line.kfp.tagging import highest_tag, tag_version
from gangline.line.kfp.wire import Wire, check_endpoint
from gangline.line.observer import Observer
from gangline.line.record_store import RecordStore
from gangline.line.seal import Sealer
from gangline.line.states import FINAL, stage
from gangline.spec.record import STAGES, Artifact, Record
from gangline.spec.secrets import resolve_secret
from gangline.spec.site import Site
from gangline.storage.blobs import put_blob
from gangline.storage.protocol import ObjectStore

POLL_SECONDS = 2.0


def open_client(site: Site, environ: Mapping[str, str]) -> Client:
    """Raises ConfigError where the site names no server."""
    if site.kfp.endpoint is None:
        raise ConfigError(
            "kfp.endpoint: wanted the URL of a pipelines server, found none; set it in site.toml, or use --target"
            " kfp-local"
        )
    reference = site.kfp.token
    return Client(
        Wire(check_endpoint(site.kfp.endpoint), lambda: resolve_secret(reference, environ) if reference else None)
    )


def run_on_server(
    repo: Path, record: Record, *, site: Site, environ: Mapping[str, str], store: ObjectStore, observer: Observer
) -> Record:
    """Take a built run from plan to report; the record as it stands then.

    Raises:
        ConfigError: No server, image or store that tasks reach, or the server refused.
        StorageError: The server does not answer; the same command goes on.
        CancelledError: Somebody stopped the pipeline run.
        TrainingError: The pipeline ended and left the run open.
    """
    client = open_client(site, environ)
    client.check()
    records = RecordStore.of(store, record, Sealer.of(site, environ))
    id_ = _joined(client, record) or _start(client, repo, records, record, site=site, environ=environ)
    if id_ is None:
        return records.read() or record
    observer.note(f"pipeline run {link(site, id_)}")
    ended = _wait(client, id_, records, observer)
    record = records.read() or record
    if record.run.state == "open":
        _demand_end(client, record, ended)
    tag_version(repo, record, store, observer)
    return record


def _joined(client: Client, record: Record) -> str | None:
    """The pipeline run that the record links to, where it is at work."""
    if "kfp" not in record.links:
        return None
    try:
        stands = client.run(run_of_link(record.links["kfp"]))
    except UsageError:
        return None
    return None if stands.is_final else stands.id


def _start(
    client: Client, repo: Path, records: RecordStore, record: Record, *, site: Site, environ: Mapping[str, str]
) -> str | None:
    """Id of the pipeline run, started or found by name; None where the run has ended meanwhile."""
    _demand_reachable(site)
    file = compile_run(repo, record, site=site, environ=environ)
    version = client.version(record.run.project, version_name(record), file, tags={"commit": record.commit.sha})
    repository = Repository.at(repo)
    config = TaskConfig(
        site=for_tasks(site),
        history=keep_history(repository, record.commit.sha, records.store, highest=highest_tag(repo, record)),
        folder=repository.prefix or ".",
        url=site.kfp.ui_url or site.kfp.endpoint,
    )
    experiment = client.experiment(experiment_name(record))
    if (records.read() or record).run.state == "ended":
        return None
    id_ = client.start(
        run_name(record), experiment=experiment, version=version, run=record.run.id, config=config.to_text(), root=None
    )
    _remember(records, link(site, id_), file)
    return id_


def _remember(records: RecordStore, url: str, file: bytes) -> None:
    """The record leads to the pipeline run and keeps its file."""
    key = put_blob(records.store, file)
    artifact = Artifact(
        kind="pipeline", key=key, media_type="application/yaml", size_bytes=len(file), sha256=key.rsplit("/", 1)[1]
    )

    def change(record: Record) -> Record:
        others = tuple(each for each in record.artifacts if each.key != key)
        return replace(record, links=record.links | {"kfp": url}, artifacts=(*others, artifact))

    records.change(change)


def _demand_reachable(site: Site) -> None:
    if not site.store.url.startswith("s3:"):
        raise ConfigError(
            f"store.url: wanted a store that pipeline tasks reach, s3://bucket/prefix, found {site.store.url};"
            " a folder serves this machine, with --target kfp-local"
        )


def _wait(client: Client, id_: str, records: RecordStore, observer: Observer) -> PipelineRun:
    """Tell stages as the record learns of them, until the pipeline run has ended."""
    told: set[str] = set()
    while True:
        stands = client.run(id_)
        _tell_news(records.read(), told, observer)
        if stands.is_final:
            return stands
        time.sleep(POLL_SECONDS)


def _tell_news(record: Record | None, told: set[str], observer: Observer) -> None:
    """What stages did since the last look."""
    for name in STAGES[2:] if record else ():
        assert record is not None
        info = stage(record, name)
        if info.started and f"{name} started" not in told:
            told.add(f"{name} started")
            observer.stage_started(name)
        if info.started and info.state in FINAL and f"{name} ended" not in told:
            told.add(f"{name} ended")
            observer.stage_ended(name, info)


def _demand_end(client: Client, record: Record, ended: PipelineRun) -> None:
    url = record.links.get("kfp", ended.id)
    if record.run.cancel_requested or ended.state == "CANCELED":
        raise CancelledError(f"{record.run.id}: its pipeline run was stopped; gangline run goes on: {url}")
    raise TrainingError(
        f"{record.run.id}: {last_words(client, record, ended)}; the pipeline run ended as {ended.state} and the run is"
        f" open: see {url}, then gangline run goes on"
    )
