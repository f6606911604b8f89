"""Entry of every component: runs one stage, returns typed outputs, and exits with the code of a failure.

A component's process is an entry like the command line, so the environment is read here. On a cluster the owner of
its gangs is the Workflow that made the task's pod, never the pod: an evicted pod does not end its training, a deleted
Workflow does. An owner in another namespace counts as gone on a cluster, so there is none where gangs have a
namespace of their own. Outputs are rendered from the record alone; a pipelines server keeps them of a task that
succeeded, and of one that failed its log.
"""

import json
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from gangline.errors import GanglineError
from gangline.kfp.task_config import TaskConfig, mounted_secrets
from gangline.kfp.task_events import TaskEventWriter
from gangline.launch.kubernetes.client.api import ApiForbidden, KubernetesApi, Object
from gangline.launch.kubernetes.client.auth import own_namespace
from gangline.line.record import runs
from gangline.line.record.observer import SilentObserver
from gangline.line.record.store import RecordStore
from gangline.line.stages import run_stage as line_run_stage
from gangline.report.facts import band_of, headline
from gangline.sanitize import visible
from gangline.spec.config.site import Site
from gangline.spec.record import Record, run_prefix
from gangline.spec.run_flags import stage
from gangline.storage import site_paths
from gangline.storage.objects.protocol import ObjectStore

POD_NAME, POD_UID = "KFP_POD_NAME", "KFP_POD_UID"
"""Variables that a pipelines server sets in a task's pod; the local runner does not."""
OWNING = "Workflow"


def find_workflow(api: KubernetesApi, environ: Mapping[str, str], *, here: str | None) -> Object | None:
    """The Workflow of this process's pod, as an owner; None outside the namespace of the gangs.

    Args:
        api: Of the namespace of the gangs.
        environ: Environment of the task.
        here: Namespace of its pod; None if not known.
    """
    pod = _own_pod(api, environ) if here in (None, api.namespace) else None
    if pod is None or pod["metadata"]["uid"] != environ.get(POD_UID, pod["metadata"]["uid"]):
        return None
    owners = (each for each in pod["metadata"].get("ownerReferences") or () if each.get("controller"))
    return next((_as_object(owner) for owner in owners if owner["kind"] == OWNING), None)


def _own_pod(api: KubernetesApi, environ: Mapping[str, str]) -> Object | None:
    """The pod of this process; None also if its account may not read it, so that gangs have no owner."""
    name = environ.get(POD_NAME)
    try:
        return api.get(f"/api/v1/namespaces/{api.namespace}/pods/{name}") if name else None
    except ApiForbidden:
        return None


def _as_object(reference: Object) -> Object:
    """Object made of an owner reference, which needs no right to read Workflows."""
    named = {"name": reference["name"], "uid": reference["uid"]}
    return {"apiVersion": reference["apiVersion"], "kind": reference["kind"], "metadata": named}


USERS_TMPDIR = "GANGLINE_TMPDIR"
"""The user's TMPDIR, because gangs outlive the temporary folder of the local runner."""


class StageOutputs(NamedTuple):
    """Outputs of a component other than artifacts."""

    run: str
    taken: bool
    """The stage was reused from another run, or skipped."""


def run_stage(name: str, *, run: str, config: str, outputs: Mapping[str, Any] | None = None) -> StageOutputs:
    """Run stage `name` of `run`, or return its result; a failure ends the process with its exit code.

    Args:
        name: A stage from plan to report.
        run: Full run id.
        config: Text of a TaskConfig.
        outputs: Artifacts of the component, by `metrics`, `page`, `verdict`, `model`.
    """
    task = TaskConfig.from_text(config)
    environ = os.environ
    _restore_tmpdir(environ)
    writer = TaskEventWriter(Path(task.told)) if task.told else None
    try:
        return _run(name, run, task, writer, outputs or {}, environ=environ)
    except GanglineError as error:
        if writer is not None:
            writer.failed(name, error)
        print(visible(f"error: {error}"), file=sys.stderr)  # noqa: T201  # a pod's log is the component's screen
        raise SystemExit(error.exit_code) from error


def _run(
    name: str,
    run: str,
    task: TaskConfig,
    writer: TaskEventWriter | None,
    outputs: Mapping[str, Any],
    *,
    environ: Mapping[str, str],
) -> StageOutputs:
    site, environ = mounted_secrets(task.site, environ)
    with _repository(task, site, environ) as repo:
        try:
            record = line_run_stage.run_stage(
                repo, name, run, site=site, environ=environ, observer=writer or SilentObserver(),
                max_seconds=task.patience_seconds, kind="kfp", url=task.url,
                find_owner=partial(find_workflow, environ=environ, here=own_namespace()),
            )  # fmt: skip
        except GanglineError:
            if "verdict" in outputs:
                _print_verdict(site_paths.open_site_store(repo, site, environ), run)
            raise
        if outputs:
            store = site_paths.open_site_store(repo, site, environ)
            write_outputs(record, _base(record, store), outputs)
    return StageOutputs(run=record.run.id, taken=stage(record, name).state in {"taken", "skipped"})


def _print_verdict(store: ObjectStore, run: str) -> None:
    """Print the verdict of a run whose stage failed: of such a task a server keeps the log and no output."""
    from gangline.report.run.markdown import render_markdown

    with suppress(GanglineError):
        print(visible(render_markdown(runs.find_run(store, run))))  # noqa: T201  # a pod's log is the component's screen


@contextmanager
def _repository(task: TaskConfig, site: Site, environ: Mapping[str, str]) -> Iterator[Path]:
    """Folder of the line: that of this machine, or a temporary one with the history from the store."""
    if task.repo is not None:
        yield Path(task.repo)
        return
    with tempfile.TemporaryDirectory(prefix="gangline-") as name:
        folder = Path(name)
        if task.history is not None:
            from gangline.kfp.task_repository import restore_history

            restore_history(site_paths.open_site_store(folder, site, environ), task.history, folder)
        repo = folder / task.folder
        repo.mkdir(parents=True, exist_ok=True)
        yield repo


def _base(record: Record, store: ObjectStore) -> Record | None:
    wanted = record.commit.base
    if wanted is None:
        return None
    return RecordStore(store, run_prefix(record.run.project, wanted.commit, wanted.run)).read()


def _restore_tmpdir(environ: MutableMapping[str, str]) -> None:
    """Restore the user's TMPDIR, for processes that outlive this one."""
    user_tmpdir = environ.pop(USERS_TMPDIR, None)
    if user_tmpdir is not None:
        environ["TMPDIR"] = user_tmpdir
        tempfile.tempdir = None


class OutputArtifact(Protocol):
    """An output of a component; kfp gives each kind other methods."""

    path: str


def run_numbers(record: Record) -> dict[str, float]:
    """Numbers of a run to compare with other runs, by stable names."""
    found = {name: metric.value for name, metric in record.metrics.items()} | _judged_on(record)
    if record.ledger is not None:
        found["allocated_seconds"] = record.ledger.allocated_seconds
        if record.ledger.useful_share is not None:
            found["useful_share"] = record.ledger.useful_share
    if record.gang is not None:
        found["restarts"] = float(record.gang.restarts)
    if record.plan is not None:
        found["world_size"] = float(record.plan.world_size)
    if record.proof is not None and record.proof.replay_difference is not None:
        found["replay_difference"] = record.proof.replay_difference
    return {name: value for name, value in sorted(found.items()) if math.isfinite(value)}


def _judged_on(record: Record) -> dict[str, float]:
    """The band of the headline metric."""
    judged = headline(record)
    band = band_of(judged.metric) if judged else None
    return {f"{judged.name}_band_center": band.center, f"{judged.name}_band_half": band.half} if judged and band else {}


def write_outputs(record: Record, base: Record | None, outputs: Mapping[str, Any]) -> None:
    """Fill the outputs that a component declares: `metrics`, `page`, `verdict`, `model`, those that it has."""
    for name, artifact in outputs.items():
        _WRITERS[name](record, base, artifact)


def _metrics(record: Record, _base: Record | None, artifact: Any) -> None:
    for name, value in run_numbers(record).items():
        artifact.log_metric(name, value)


def _page(record: Record, base: Record | None, artifact: OutputArtifact) -> None:
    from gangline.report.run.html import render_html

    Path(artifact.path).write_text(render_html(record, base), encoding="utf-8")


def _verdict(record: Record, _base: Record | None, artifact: OutputArtifact) -> None:
    from gangline.report.run.markdown import render_markdown

    Path(artifact.path).write_text(render_markdown(record), encoding="utf-8")


def _model(record: Record, _base: Record | None, artifact: Any) -> None:
    """The version by name, or why there is none; its files stay in the store, as the server copies what `uri` names."""
    published = stage(record, "publish")
    version: dict[str, Any] = {
        name: published.outputs[name] for name in ("model", "version", "key") if name in published.outputs
    }
    facts = version or {"not_published": published.message}
    artifact.metadata.update(facts)
    Path(artifact.path).write_text(json.dumps(facts), encoding="utf-8")


_WRITERS: Mapping[str, Callable[[Record, Record | None, Any], None]] = {
    "metrics": _metrics,
    "page": _page,
    "verdict": _verdict,
    "model": _model,
}
