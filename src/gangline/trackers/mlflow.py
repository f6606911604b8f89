"""Writer of MLflow: one run of its server for all ranks, generations and drivers of a run.

MLflow gives a run its id, so ours is a tag that `create_run` writes in the same call: a crash leaves a run that is
found, or none. It keys points by metric, step, time and value, so what is sent twice is there once.
"""

import os
import posixpath
import random
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gangline.trackers.protocol import Point, TrackedRun, TrackerError, WriterSettings

if TYPE_CHECKING:
    from mlflow.entities import Run

RUN, SEARCH, PROJECT, REPOSITORY = "gangline.run", "gangline.search", "gangline.project", "gangline.repository"
CALL_SECONDS = 10
_STATES = {"running": "RUNNING", "finished": "FINISHED", "failed": "FAILED", "killed": "KILLED"}
_MOST_PARAMETERS, _MOST_NAME, _MOST_PARAMETER, _MOST_TAG, _MOST_POINTS = 100, 250, 6000, 8000, 1000
_ODD, _TRIES = re.compile(r"[^\w.\- :]"), 8
_LASTING = {
    "UNAUTHENTICATED": "wanted a token that this server takes; see token and url of the table",
    "PERMISSION_DENIED": "wanted a token with the right to write; see token of the table",
    "ENDPOINT_NOT_FOUND": "wanted the address of an MLflow server; see url of the table",
    "RESOURCE_DOES_NOT_EXIST": "someone removed it there; gangline track push writes it again",
    "INVALID_PARAMETER_VALUE": "gangline track push writes again what someone removed there",
}
"""What works, for codes of answers that no other try changes."""


def open_writer(settings: WriterSettings) -> "MlflowWriter":
    """Raises TrackerError unless `url` is that of a server: MLflow would write files, or ask other services."""
    if urlsplit(settings.url or "").scheme not in ("http", "https"):
        raise TrackerError(f"url: wanted that of an MLflow server, found {settings.url}; http://HOST:5000 works")
    os.environ |= {
        "MLFLOW_HTTP_REQUEST_TIMEOUT": str(CALL_SECONDS), "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
        "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    }  # fmt: skip
    if settings.token:
        for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):  # go before a token
            os.environ.pop(name, None)
        os.environ["MLFLOW_TRACKING_TOKEN"] = settings.token
    return MlflowWriter(settings)


class MlflowWriter:
    """Writes one run, and the run of its search above it."""

    def __init__(self, settings: WriterSettings) -> None:
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient(settings.url, settings.url)
        self._prefix = settings.prefix
        self._experiment = self._id = self._parent = ""

    def begin(self, run: TrackedRun) -> str:
        with _answers():
            self._experiment = self._find_experiment(run.experiment)
            if run.group:
                self._parent = self._find_or_create(run, SEARCH, run.group, {"mlflow.runName": run.group})
            self._id = self._find_or_create(run, RUN, run.id, self._tags(run))
            self._describe(run)
            if run.status == "running":
                for each in filter(None, (self._parent, self._id)):
                    self._client.update_run(each, "RUNNING")
        return self._id

    def write(self, points: Sequence[Point]) -> None:
        from mlflow.entities import Metric

        made = [Metric(_name(self._prefix + each.metric), each.value, each.time_ms, each.step) for each in points]
        with _answers():
            for start in range(0, len(made), _MOST_POINTS):
                self._client.log_batch(self._id, metrics=made[start : start + _MOST_POINTS])

    def finish(self, run: TrackedRun) -> None:
        with _answers():
            self._describe(run)
            self._client.set_terminated(self._id, _STATES[run.status], run.ended_ms)
            trials = f"tags.`mlflow.parentRunId` = '{self._parent}' and attributes.status = 'RUNNING'"
            if self._parent and not self._client.search_runs([self._experiment], trials, max_results=1):
                self._client.set_terminated(self._parent, "FINISHED", run.ended_ms)

    def close(self) -> None:
        """Every call has its answer; nothing is open."""

    def _describe(self, run: TrackedRun) -> None:
        from mlflow.entities import Param, RunTag

        parameters = [
            Param(_name(self._prefix + name), _cut(text, _MOST_PARAMETER)) for name, text in run.parameters.items()
        ]
        tags = [RunTag(name, text) for name, text in self._tags(run).items()]
        for start in range(0, max(len(parameters), len(tags)), _MOST_PARAMETERS):
            part = slice(start, start + _MOST_PARAMETERS)
            self._client.log_batch(self._id, params=parameters[part], tags=tags[part])

    def _tags(self, run: TrackedRun) -> dict[str, str]:
        own = {RUN: run.id, PROJECT: run.project, "mlflow.runName": run.name, "mlflow.source.name": "gangline"}
        above = {"mlflow.parentRunId": self._parent} if self._parent else {}
        return {_name(name): _cut(text, _MOST_TAG) for name, text in {**run.tags, **own, **above}.items()}

    def _find_experiment(self, name: str) -> str:
        from mlflow.exceptions import RestException

        experiment = self._client.get_experiment_by_name(name)
        if experiment is None:
            try:
                return str(self._client.create_experiment(name))
            except RestException as error:  # another driver was first
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
                experiment = self._client.get_experiment_by_name(name)
        if experiment.lifecycle_stage != "active":
            raise TrackerError(
                f"the experiment {name} is deleted there: `mlflow experiments restore -x {experiment.experiment_id}` on"
                " that server, or experiment of the table names another one"
            )
        return str(experiment.experiment_id)

    def _find_or_create(self, run: TrackedRun, tag: str, value: str, tags: Mapping[str, str]) -> str:
        """Id of the one run with this tag; of several creators at once those that see another one withdraw."""
        runs: list[Run] = []
        for _ in range(_TRIES):
            runs = self._find(run, tag, value)
            if not runs:
                identity = {tag: value, PROJECT: run.project} | dict(tags)
                own = self._client.create_run(self._experiment, run.started_ms, identity)
                if len(runs := self._find(run, tag, value)) > 1:
                    self._client.delete_run(own.info.run_id)
            if len(runs) == 1 or (runs and runs[0].data.metrics):
                break
            time.sleep(random.random())  # noqa: S311  # so that one of them is alone
        return str(runs[0].info.run_id)

    def _find(self, run: TrackedRun, tag: str, value: str) -> "list[Run]":
        """Runs of this project with that tag, those with points first."""
        runs = self._client.search_runs([self._experiment], f"tags.`{tag}` = '{value}'")
        for each in runs:
            own = {PROJECT: run.project, REPOSITORY: run.tags.get(REPOSITORY, "")}
            theirs = {name: each.data.tags.get(name, text) for name, text in own.items()}
            if theirs != own:
                raise TrackerError(
                    f"the experiment {run.experiment} has a run {value} of {' '.join(theirs.values())}, which is left"
                    f" alone: this is {' '.join(own.values())}; experiment of the table names another one"
                )
        return sorted(runs, key=lambda each: (not each.data.metrics, each.info.run_id))


@contextmanager
def _answers() -> Iterator[None]:
    """A refusal that lasts as TrackerError; whatever may pass stays what it is."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        if (works := _LASTING.get(error.error_code)) is None:
            raise
        raise TrackerError(f"{_cut(' '.join(str(error).split()), 200)}; {works}") from error


def _name(name: str) -> str:
    """`name` as MLflow takes it; one that had to change ends with a digest, so that two stay two."""
    is_path = posixpath.normpath(name) == name and not name.startswith(("/", ".."))
    if is_path and len(name) <= _MOST_NAME and not _ODD.search(name.replace("/", "")):
        return name
    return f"{_ODD.sub('_', name)[:200]}-{sha256(name.encode()).hexdigest()[:8]}"


def _cut(text: str, limit: int) -> str:
    """`text` in at most `limit` characters; one that is cut says so."""
    mark = f" ... cut, {len(text)} characters"
    return text if len(text) <= limit else text[: limit - len(mark)] + mark
