"""Writer of MLflow: one run of its server for all ranks, generations and drivers of a run, and registered models.

MLflow gives a run its id, so ours is a tag that `create_run` writes in the same call: a crash leaves a run that is
found, or none. It keys points by metric, step, time and value, so what is sent twice is there once.

Models go one way: a version for each published one, aliases as promotions set them. MLflow numbers versions itself, so
ours is a tag. Of two that were made at the same time the first number stays.
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

from gangline.trackers.protocol import (
    Mirrored,
    MirroredModel,
    Point,
    Status,
    TrackedRun,
    TrackerError,
    WriterSettings,
)

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.entities.model_registry import RegisteredModel
    from mlflow.tracking import MlflowClient

RUN, PARENT = "gangline.run", "gangline.parent_of"
"""Tags by which a run is found, and the run above those of a search."""
PROJECT, REPOSITORY = "gangline.project", "gangline.repository"
VERSION = "gangline.version"
ALONE = "gangline.alone"
"""Mark of a run that no other creator made, too."""
CALL_SECONDS = 10
_KIND = {"mlflow.experimentKind": "custom_model_development"}
"""Tag of experiments that MLflow's pages show as trainings; without it they are shown as evaluations of prompts."""
_STATES: dict[Status, str] = {"running": "RUNNING", "finished": "FINISHED", "failed": "FAILED", "killed": "KILLED"}
_MOST_PARAMETERS, _MOST_NAME, _MOST_PARAMETER, _MOST_TAG, _MOST_POINTS = 100, 250, 6000, 8000, 1000
_ODD, _TRIES = re.compile(r"[^\w.\- :]"), 8
_LASTING = {
    "UNAUTHENTICATED": "wanted a token that this server takes; see token and url of the table",
    "PERMISSION_DENIED": "wanted a token with the right to write; see token of the table",
    "ENDPOINT_NOT_FOUND": "wanted the address of an MLflow server; see url of the table",
    "RESOURCE_DOES_NOT_EXIST": "someone deleted it there; gangline track push writes it again",
    "INVALID_PARAMETER_VALUE": "a run that someone deleted there is written again by gangline track push",
}
"""What works, for codes of answers that no other try changes."""


def open_writer(settings: WriterSettings) -> "MlflowWriter":
    """Raises TrackerError unless `url` is that of a server: MLflow would write files, or ask other services."""
    if urlsplit(settings.url or "").scheme not in ("http", "https"):
        raise TrackerError(f"url: wanted that of an MLflow server, found {settings.url}; http://HOST:5000 works")
    os.environ.update(
        MLFLOW_HTTP_REQUEST_TIMEOUT=str(CALL_SECONDS), MLFLOW_HTTP_REQUEST_MAX_RETRIES="0",
        MLFLOW_DISABLE_TELEMETRY="true", MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT="true",
    )  # fmt: skip
    if settings.token:  # a user and password, of variables or of a ~/.netrc, would go before it
        os.environ.update(
            MLFLOW_TRACKING_TOKEN=settings.token, MLFLOW_TRACKING_USERNAME="", MLFLOW_TRACKING_PASSWORD="",
            NETRC=os.devnull,
        )  # fmt: skip
    return MlflowWriter(settings)


class MlflowWriter:
    """Writes one run, and the run of its search above it."""

    def __init__(self, settings: WriterSettings) -> None:
        from mlflow.tracking import MlflowClient

        self._url, self._prefix = (settings.url or "").rstrip("/"), settings.prefix
        self.client = MlflowClient(self._url, self._url)
        self._experiment = self._id = self._parent = ""

    def begin(self, run: TrackedRun) -> None:
        with answers():
            self._experiment = self._find_experiment(run.experiment)
            if run.group:
                self._parent = self._find_or_create(run, PARENT, run.group, {"mlflow.runName": run.group})
            self._id = self._find_or_create(run, RUN, run.id, self._tags(run))
            self._describe(run)
            if run.status == "running":
                for each in filter(None, (self._parent, self._id)):
                    self.client.update_run(each, "RUNNING")

    def write(self, points: Sequence[Point]) -> None:
        from mlflow.entities import Metric

        made = [Metric(_name(self._prefix + point.metric), point.value, point.time_ms, point.step) for point in points]
        with answers():
            for start in range(0, len(made), _MOST_POINTS):
                self.client.log_batch(self._id, metrics=made[start : start + _MOST_POINTS])

    def finish(self, run: TrackedRun) -> None:
        with answers():
            self._describe(run)
            self.client.set_terminated(self._id, _STATES[run.status], run.ended_ms)
            trials = f"tags.`mlflow.parentRunId` = '{self._parent}' and attributes.status = 'RUNNING'"
            if self._parent and not self.client.search_runs([self._experiment], trials, max_results=1):
                self.client.set_terminated(self._parent, "FINISHED", run.ended_ms)

    def look(self, run: TrackedRun) -> Mirrored | None:
        with answers():
            experiment = self.client.get_experiment_by_name(run.experiment)
            self._experiment = experiment.experiment_id if experiment else ""
            runs = self._find(run, RUN, run.id) if experiment else []
        if not runs:
            return None
        info, points = runs[0].info, runs[0].data._metric_objs  # noqa: SLF001  # the newest of each metric, with its step
        return Mirrored(
            id=info.run_id, place=f"{self._url}/#/experiments/{self._experiment}/runs/{info.run_id}",
            step=max((point.step for point in points), default=None),
            time_ms=max((point.timestamp for point in points), default=None),
            status=next((status for status, state in _STATES.items() if state == info.status), None),
        )  # fmt: skip

    def close(self) -> None:
        """Every call has its answer; nothing is open."""

    def _describe(self, run: TrackedRun) -> None:
        from mlflow.entities import Param, RunTag

        parameters = [
            Param(_name(self._prefix + name), _cut_text(text, _MOST_PARAMETER)) for name, text in run.parameters.items()
        ]
        tags = [RunTag(name, text) for name, text in self._tags(run).items()]
        for start in range(0, max(len(parameters), len(tags)), _MOST_PARAMETERS):
            part = slice(start, start + _MOST_PARAMETERS)
            self.client.log_batch(self._id, params=parameters[part], tags=tags[part])

    def _tags(self, run: TrackedRun) -> dict[str, str]:
        own = {RUN: run.id, PROJECT: run.project, "mlflow.runName": run.name, "mlflow.source.name": "gangline"}
        above = {"mlflow.parentRunId": self._parent} if self._parent else {}
        return {_name(name): _cut_text(text, _MOST_TAG) for name, text in {**run.tags, **own, **above}.items()}

    def _find_experiment(self, name: str) -> str:
        from mlflow.exceptions import RestException

        experiment = self.client.get_experiment_by_name(name)
        if experiment is None:
            try:
                return str(self.client.create_experiment(name, tags=_KIND))
            except RestException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
            return self._find_experiment(name)  # another driver was first
        if experiment.lifecycle_stage != "active":
            raise TrackerError(
                f"the experiment {name} is deleted there: `mlflow experiments restore -x {experiment.experiment_id}` on"
                " that server, or experiment of the table names another one"
            )
        return str(experiment.experiment_id)

    def _find_or_create(self, run: TrackedRun, tag: str, value: str, tags: Mapping[str, str]) -> str:
        """Id of the one run with this tag; of several creators at once those that see another one withdraw.

        The creator that saw no other marks its run. One that stays without a mark is of a creator that was killed.
        """
        runs: list[Run] = []
        for _ in range(_TRIES):
            runs = self._find(run, tag, value)
            if not runs:
                identity = {tag: value, PROJECT: run.project, REPOSITORY: run.tags.get(REPOSITORY, ""), **tags}
                own = self.client.create_run(self._experiment, run.started_ms, identity).info.run_id
                if len(self._find(run, tag, value)) == 1:
                    self.client.set_tag(own, ALONE, "true")
                    return str(own)
                self.client.delete_run(own)
            elif ALONE in runs[0].data.tags:
                return str(runs[0].info.run_id)
            time.sleep(random.random())  # noqa: S311  # so that one of them is alone
        if not runs:
            raise TimeoutError(f"{_TRIES} times another writer made a run tagged {tag} = {value} at the same time")
        self.client.set_tag(runs[0].info.run_id, ALONE, "true")
        return str(runs[0].info.run_id)

    def _find(self, run: TrackedRun, tag: str, value: str) -> "list[Run]":
        """Runs of this project with that tag, a marked one first."""
        runs = self.client.search_runs([self._experiment], f"tags.`{tag}` = '{value}'")
        for each in runs:
            own = {PROJECT: run.project, REPOSITORY: run.tags.get(REPOSITORY, "")}
            theirs = {name: each.data.tags.get(name, text) for name, text in own.items()}
            if theirs != own:
                raise TrackerError(
                    f"the experiment {run.experiment} has a run {value} of {' '.join(theirs.values())}, which is left"
                    f" alone: this is {' '.join(own.values())}; experiment of the table names another one"
                )
        return sorted(runs, key=lambda each: (ALONE not in each.data.tags, each.info.run_id))


def mirror_model(settings: WriterSettings, model: MirroredModel) -> list[str]:
    """Make the version if it is missing and set its aliases; a sentence for each that named another one there.

    Raises:
        TrackerError: The model there is another project's, or of somebody who does not use gangline.
    """
    writer = open_writer(settings)
    client, run = writer.client, writer.look(model.run)
    with answers():
        registered = _registered(client, model)
        number = _number(client, model, run.id if run else None)
        return [text for alias in model.aliases if (text := _set_alias(client, model, alias, number, registered))]


def _registered(client: "MlflowClient", model: MirroredModel) -> "RegisteredModel":
    from mlflow.exceptions import MlflowException

    try:
        registered = client.create_registered_model(model.name, tags={PROJECT: model.project})
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
        registered = client.get_registered_model(model.name)
    if (owner := registered.tags.get(PROJECT)) != model.project:
        whose = f"the project {owner}" if owner else "somebody who does not use gangline"
        raise TrackerError(f"the model {model.name} there belongs to {whose} and is left alone; publish.model renames")
    return registered


def _number(client: "MlflowClient", model: MirroredModel, run: str | None) -> str:
    """MLflow's number of the version, made if it is missing."""
    wanted = f"name = '{model.name}' and tags.`{VERSION}` = '{model.version}'"
    if not (rows := client.search_model_versions(wanted)):
        tags = {**model.tags, VERSION: str(model.version)}
        made = client.create_model_version(model.name, model.source, run, tags=tags, await_creation_for=0)
        rows = client.search_model_versions(wanted)
        if any(int(row.version) < int(made.version) for row in rows):
            client.delete_model_version(model.name, made.version)
    return str(min((row.version for row in rows), key=int))


def _set_alias(
    client: "MlflowClient", model: MirroredModel, alias: str, number: str, registered: "RegisteredModel"
) -> str:
    """Point the alias at `number`; says so where it named neither that nor the version before."""
    there = registered.aliases.get(alias)
    if there == number:
        return ""
    client.set_registered_model_alias(model.name, alias, number)
    if there is None:
        return ""
    meant = client.get_model_version(model.name, there).tags.get(VERSION)
    if meant == str(model.aliases[alias]):
        return ""
    named = f"version {meant}" if meant else f"a version that is not ours, {there} of MLflow"
    return f"{model.name}@{alias} named {named} there, and is version {model.version} again"


@contextmanager
def answers() -> Iterator[None]:
    """A refusal that lasts as TrackerError; whatever may pass stays what it is."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        if (works := _LASTING.get(error.error_code)) is None:
            raise
        raise TrackerError(f"{_cut_text(' '.join(str(error).split()), 200)}; {works}") from error


def _name(name: str) -> str:
    """`name` as MLflow takes it; one that had to change ends with a digest, so that two stay two."""
    is_path = posixpath.normpath(name) == name and not name.startswith(("/", ".."))
    if is_path and len(name) <= _MOST_NAME and not _ODD.search(name.replace("/", "")):
        return name
    return f"{_ODD.sub('_', name)[:200]}-{sha256(name.encode()).hexdigest()[:8]}"


def _cut_text(text: str, limit: int) -> str:
    """`text` in at most `limit` characters; one that is cut says so."""
    mark = f" ... cut, {len(text)} characters"
    return text if len(text) <= limit else text[: limit - len(mark)] + mark
