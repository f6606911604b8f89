"""A run on a pipelines server: compiled, stored, uploaded, started or found, awaited, cancelled; why it ended early.

The record has the result of the run, the server only the state of its pipeline. A second call finds everything by
name. A cancellation marks the record, stops the pipeline, then the gangs, twice: a task that is retried meanwhile finds
the mark and starts nothing; gangs that it started just before are stopped by the second pass.
"""

import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

from gangline.errors import CancelledError, CapacityError, ConfigError, GanglineError, TrainingError, UsageError
from gangline.git.repository import Repository
from gangline.kfp.client import FailedTask, KfpClient, KfpHttp, PipelineRun, check_endpoint
from gangline.kfp.compiler import compile_run
from gangline.kfp.task_config import TaskConfig, site_for_tasks
from gangline.kfp.task_repository import highest_tag, store_history, tag_version
from gangline.line.gangs.launchers import open_cluster
from gangline.line.record import runs, states
from gangline.line.record.observer import Observer, SilentObserver
from gangline.line.record.store import RecordStore
from gangline.line.run.cancel import cancel_run
from gangline.sanitize import clean
from gangline.signing.record_seal import Sealer
from gangline.spec.config.secrets import resolve_secret
from gangline.spec.config.site import Site
from gangline.spec.record import STAGES, Artifact, Record
from gangline.spec.run_flags import FINAL, stage
from gangline.storage import site_paths
from gangline.storage.objects.blobs import put_blob
from gangline.storage.objects.protocol import ObjectStore

MAX_LOGS = 8
_HEADS = (re.compile("error: "), re.compile(r"F\d{4} [^\]]*\] "))
"""Head of an error in a log: of a stage, else of Kubeflow's driver or launcher, which log with glog."""
_MOST_LETTERS = 300
MAX_NAME = 120
"""Letters of a name on the server."""
_PLAIN = re.compile(r"[^A-Za-z0-9._/-]+")


def early_end_reason(client: KfpClient, record: Record, ended: PipelineRun) -> str:
    """Clause with the first stage that has not ended, and the error in the log of its task or of Kubeflow's driver."""
    name = next((each for each in STAGES[2:] if stage(record, each).state not in FINAL), STAGES[-1])
    tasks = _failed_tasks(ended.failed, name)
    logs = (client.log(ended.id, task.node) for task in tasks[:MAX_LOGS] if task.node)
    errors = chain(map(_error_line, logs), (clean(task.error, limit=_MOST_LETTERS) for task in tasks))
    error = next(filter(None, errors), "")
    clause = f"stage {name} did not end"
    if any(task.name.startswith(f"{name}-driver") for task in tasks):
        clause = f"stage {name} did not start, as the pod of Kubeflow's own driver for it failed"
    return clause + (f": {error}" if error else ", and the server has no log of the task")


def _failed_tasks(failed: tuple[FailedTask, ...], name: str) -> list[FailedTask]:
    """Failed tasks, those of stage `name` and of its driver first."""
    own = [task for task in failed if task.name == name or task.name.startswith(f"{name}-driver")]
    within = {node for task in own for node in (task.node, *task.children)}
    while more := set(_children(failed, within)) - within:
        within |= more
    return sorted(failed, key=lambda task: task not in own and task.node not in within)


def _children(failed: tuple[FailedTask, ...], within: set[str]) -> Iterable[str]:
    return (child for task in failed if task.node in within for child in task.children)


def _error_line(log: str) -> str:
    """The last error in a log, without its head; else the last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = ([head.sub("", line, count=1) for line in lines if head.match(line)] for head in _HEADS)
    matched = next(filter(None, errors), lines)
    return clean(matched[-1], limit=_MOST_LETTERS) if matched else ""


POLL_SECONDS = 2.0


def open_client(site: Site, environ: Mapping[str, str]) -> KfpClient:
    """A client of the site's server; raises ConfigError if there is none."""
    if site.kfp.endpoint is None:
        raise ConfigError(
            "kfp.endpoint: wanted the URL of a pipelines server, found none; set it in site.toml, or use --target"
            " kfp-local"
        )
    reference = site.kfp.token
    return KfpClient(
        KfpHttp(check_endpoint(site.kfp.endpoint), lambda: resolve_secret(reference, environ) if reference else None)
    )


def run_on_server(
    repo: Path, record: Record, *, site: Site, environ: Mapping[str, str], store: ObjectStore, observer: Observer
) -> Record:
    """Take a built run from plan to report; returns its record.

    Raises:
        ConfigError: No server or image, no store that tasks can reach, or the server refused.
        StorageError: The server does not respond; the same command resumes the run.
        CancelledError: The pipeline run was stopped.
        TrainingError: The pipeline ended, and the run is still open.
    """
    client = open_client(site, environ)
    client.check()
    records = RecordStore.of(store, record, Sealer.of(site, environ))
    id_ = _adopted_run(client, record) or _start(client, repo, records, record, site=site, environ=environ)
    if id_ is None:
        return records.read() or record
    observer.note(f"pipeline run {run_url(site, id_)}")
    ended = _wait(client, id_, records, observer)
    record = records.read() or record
    if record.run.state == "open":
        _require_end(client, record, ended, retries=_retries_text(site, environ))
    tag_version(repo, record, store, observer)
    return record


def run_name(record: Record) -> str:
    """Such as `9f31c2a0-main-a1`, with the attempt of the run."""
    return _shorten_name(f"{record.commit.sha[:8]}-{_branch(record)}-a{record.run.attempt}")


def experiment_name(record: Record) -> str:
    """`bytegpt/main`: the compare page shows the runs of one branch side by side."""
    return _shorten_name(f"{record.run.project}/{_branch(record)}")


def version_name(record: Record) -> str:
    """`<commit>-<line 8>`, equal for equal pipeline files."""
    return f"{record.commit.sha}-{record.inputs.line[:8]}"


def run_url(site: Site, id_: str) -> str:
    """Page of a pipeline run."""
    return f"{(site.kfp.ui_url or site.kfp.endpoint or '').rstrip('/')}/#/runs/details/{id_}"


def run_id_of_url(url: str) -> str:
    """Id of the pipeline run in a `run_url`."""
    return url.rsplit("/", 1)[-1]


def _adopted_run(client: KfpClient, record: Record) -> str | None:
    """The pipeline run that the record links to, if it is running."""
    if "kfp" not in record.links:
        return None
    try:
        current = client.run(run_id_of_url(record.links["kfp"]))
    except UsageError:
        return None
    return None if current.is_final else current.id


def _start(
    client: KfpClient, repo: Path, records: RecordStore, record: Record, *, site: Site, environ: Mapping[str, str]
) -> str | None:
    """Id of the pipeline run, started or found by name; None if the run has ended meanwhile."""
    _require_cluster_store(site)
    file = compile_run(repo, record, site=site, environ=environ)
    version = client.version(record.run.project, version_name(record), file, tags={"commit": record.commit.sha})
    repository = Repository.at(repo)
    config = TaskConfig(
        site=site_for_tasks(site),
        history=store_history(repository, record.commit.sha, records.store, highest=highest_tag(repo, record)),
        folder=repository.prefix or ".",
        url=site.kfp.ui_url or site.kfp.endpoint,
    )
    experiment = client.experiment(experiment_name(record))
    if (records.read() or record).run.state == "ended":
        return None
    id_ = client.start(
        run_name(record), experiment=experiment, version=version, run=record.run.id, config=config.to_text()
    )
    _record_pipeline(records, run_url(site, id_), file)
    return id_


def _record_pipeline(records: RecordStore, url: str, file: bytes) -> None:
    """Record the link to the pipeline run, and its file."""
    key = put_blob(records.store, file)
    artifact = Artifact(
        kind="pipeline", key=key, media_type="application/yaml", size_bytes=len(file), sha256=key.rsplit("/", 1)[1]
    )

    def change(record: Record) -> Record:
        others = tuple(each for each in record.artifacts if each.key != key)
        return replace(record, links=record.links | {"kfp": url}, artifacts=(*others, artifact))

    records.change(change)


def _require_cluster_store(site: Site) -> None:
    if not site.store.url.startswith("s3:"):
        raise ConfigError(
            f"store.url: wanted a store that pipeline tasks can reach, s3://bucket/prefix, found {site.store.url};"
            " with a folder, use --target kfp-local"
        )


def _wait(client: KfpClient, id_: str, records: RecordStore, observer: Observer) -> PipelineRun:
    """Report stages as they are recorded, until the pipeline run has ended; one that was seen CANCELING is CANCELED.

    The server itself ends a stopped run as FAILED, and its history leaves the stop out.
    """
    reported: set[str] = set()
    stopped = False
    while True:
        current = client.run(id_)
        stopped = stopped or current.state == "CANCELING"
        _report_progress(records.read(), reported, observer)
        if current.is_final:
            return replace(current, state="CANCELED") if stopped else current
        time.sleep(POLL_SECONDS)


def _report_progress(record: Record | None, reported: set[str], observer: Observer) -> None:
    """Report the stages that started or ended since the last call."""
    for name in STAGES[2:] if record else ():
        assert record is not None
        info = stage(record, name)
        if info.started and f"{name} started" not in reported:
            reported.add(f"{name} started")
            observer.stage_started(name)
        if info.started and info.state in FINAL and f"{name} ended" not in reported:
            reported.add(f"{name} ended")
            observer.stage_ended(name, info)


def _retries_text(site: Site, environ: Mapping[str, str]) -> str:
    """Clause on tasks that this Kubeflow does not try again; empty if it does, or if this account cannot see it."""
    with suppress(GanglineError, ImportError):
        from gangline.launch.kubernetes.cluster.components import read_workflow_defaults

        workflow_defaults = read_workflow_defaults(open_cluster(site, environ))
        if workflow_defaults is not None and not workflow_defaults.retries_failed_tasks:
            return f" ({workflow_defaults.consequence}: the guide on Kubeflow changes it)"
    return ""


def _require_end(client: KfpClient, record: Record, ended: PipelineRun, *, retries: str) -> None:
    url = record.links.get("kfp", ended.id)
    if record.run.cancel_requested or ended.state == "CANCELED":
        by = "by gangline cancel" if record.run.cancel_requested else "on the server, which does not tell by whom"
        raise CancelledError(
            f"{record.run.id}: its pipeline run was stopped {by}; its gang may train on: gangline run resumes it,"
            f" gangline cancel {record.run.id} ends it: {url}"
        )
    raise TrainingError(
        f"{record.run.id}: {early_end_reason(client, record, ended)}; the pipeline run ended as {ended.state}{retries}"
        f" and the run is open: see {url}, then resume it with gangline run"
    )


def _branch(record: Record) -> str:
    """Branch with only characters that every name allows."""
    return _PLAIN.sub("-", record.commit.branch or "detached")


def _shorten_name(name: str) -> str:
    return name[:MAX_NAME]


END_SECONDS = 120.0
"""A server ends a stopped pipeline some 20 s later."""
END_POLL_SECONDS = 1.0


def cancel_kfp_run(
    repo: Path,
    run: str,
    *,
    site: Site,
    environ: Mapping[str, str],
    reason: str,
    save: bool = True,
    observer: Observer | None = None,
) -> Record:
    """Stop the pipeline of `run`, then the run as `line.run.cancel.cancel_run`; without a pipeline only the latter.

    Raises:
        UsageError: There is no such run.
        CapacityError: The pipeline, or a driver, did not stop in time.
    """
    store = site_paths.open_site_store(repo, site, environ)
    record = runs.find_run(store, run)
    stop = partial(
        cancel_run, repo, record.run.id, site=site, environ=environ, reason=reason, save=save, observer=observer
    )
    url = record.links.get("kfp")
    if url is None:
        return stop()
    RecordStore.of(store, record).change(lambda each: states.request_cancel(each, reason))
    client, id_ = open_client(site, environ), run_id_of_url(url)
    if client.run(id_).run != record.run.id:  # links are not sealed: it may name another pipeline
        return stop()
    client.terminate(id_)
    stop()
    _await_end(client, id_, observer or SilentObserver())
    return stop()


def _await_end(client: KfpClient, id_: str, observer: Observer) -> None:
    deadline = time.monotonic() + END_SECONDS
    while not (current := client.run(id_)).is_final:
        if time.monotonic() > deadline:
            raise CapacityError(
                f"pipeline run {id_} was stopped and is still {current.state} after {END_SECONDS:.0f} s; its gangs have"
                " ended; gangline cancel checks again"
            )
        observer.note(f"waiting for pipeline run {id_} to end, now {current.state}")
        time.sleep(END_POLL_SECONDS)
