"""A whole run whose stages Kubeflow Pipelines calls: resolved and built here, then handed to a runner or a server."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypedDict, Unpack

from gangline.errors import GanglineError, UsageError
from gangline.git.repository import Repository
from gangline.kfp.local_runner import run_locally
from gangline.kfp.server_runner import run_on_server
from gangline.launch.protocol import GangEvent
from gangline.line.record.observer import Observer, SilentObserver
from gangline.line.record.states import raise_for_verdict
from gangline.line.request.run_request import resolve_request
from gangline.line.run.create import find_or_create_run
from gangline.line.run.lease import HeldError
from gangline.line.stages.run_line import RunArguments, run_line
from gangline.line.stages.run_stage import run_stage
from gangline.signing.record_seal import Sealer
from gangline.spec.config.site import Site
from gangline.spec.record import Record, StageInfo
from gangline.spec.run_flags import FINAL, stage
from gangline.storage import site_paths

Driving = Literal["kfp-local", "kfp"]
LOCAL_STAGES = ("resolve", "build")
"""Stages that come before compiling: they make the image."""


class _Where(TypedDict):
    """What every part of the run is driven with."""

    site: Site
    environ: Mapping[str, str]
    observer: "OnceObserver"


def drive(
    repo: Path,
    *,
    driving: Driving,
    site: Site,
    environ: Mapping[str, str],
    ranks_at: Literal["local", "kubernetes"] | None = None,
    observer: Observer | None = None,
    **asked: Unpack[RunArguments],
) -> Record:
    """As `run_line`, with the stages from plan on called by a pipeline; the record tells the same story.

    Args:
        repo: Folder of line.toml, in a git repository.
        driving: By kfp's local runner, in processes of this machine, or by the server of `kfp.endpoint`.
        site: Where it runs.
        environ: For secret references and the user's configuration folder.
        ranks_at: Where gangs run; None: as the run began, or as the site says.
        observer: Told of everything.
        asked: As `run_line`; but `start` is resolve or none and `until` resolve, build or none, as a pipeline is wired
            whole, and `origin` is no fork, as tasks of a pipeline hold secrets.

    Raises:
        UsageError: A part of a pipeline was asked for.
        GanglineError: As `run_line`.
    """
    until = asked.get("until")
    _require_whole_line(asked.get("start"), until)
    if (origin := asked.get("origin")) is not None and origin.trust == "fork":
        raise UsageError("a pipeline's tasks hold secrets, so no fork's commit runs in them; --driver here does")
    once = OnceObserver(observer or SilentObserver())
    where: _Where = {"site": site, "environ": environ, "observer": once}
    try:
        record = _build(repo, {**asked, "until": until or LOCAL_STAGES[-1]}, where, driving=driving, target=ranks_at)
        if until is None and record.run.state == "open":
            record = _run_pipeline(Repository.at(repo).root, record, driving=driving, **where)
    except GanglineError:
        if once.record is None or once.record.run.state == "open":
            raise
        whole: RunArguments = {**asked, "again": False, "start": None, "until": None}
        run_line(repo, **whole, target=ranks_at, **where)
        raise
    finally:
        once.end()
    return raise_for_verdict(record)


def _build(repo: Path, asked: RunArguments, where: _Where, *, driving: Driving, target: str | None) -> Record:
    """The run with its image; one whose pipeline is at work on a server right now is taken as it stands."""
    try:
        return run_line(repo, **asked, target=target, **where)
    except HeldError:
        site, environ = where["site"], where["environ"]
        store = site_paths.open_site_store(Repository.at(repo).root, site, environ)
        question = resolve_request(
            repo, commit=asked.get("commit"), overrides=asked.get("overrides", ()), strategy=asked.get("strategy"),
            origin=asked.get("origin"),
        )  # fmt: skip
        sealer = Sealer.of(site, environ)
        record = find_or_create_run(store, question, again=False, target="kubernetes", sealer=sealer).record
        if driving != "kfp" or "kfp" not in record.links:
            raise
        where["observer"].run_started(record)
        return record


def _run_pipeline(
    repo: Path, record: Record, *, driving: Driving, site: Site, environ: Mapping[str, str], observer: "OnceObserver"
) -> Record:
    """The run after its pipeline ended; where the pipeline's last step did not come to draw the report, it is drawn."""
    observer.goes_on()
    store = site_paths.open_site_store(repo, site, environ)
    hand = run_locally if driving == "kfp-local" else run_on_server
    record = hand(repo, record, site=site, environ=environ, store=store, observer=observer)
    if stage(record, "report").state not in FINAL:
        record = run_stage(repo, "report", record.run.id, site=site, environ=environ, observer=observer, kind="kfp")
    observer.run_ended(record)
    return record


def _require_whole_line(start: str | None, until: str | None) -> None:
    if start not in (None, "resolve") or until not in (None, *LOCAL_STAGES):
        raise UsageError(
            f"wanted the whole line, found --from {start} --until {until}: a pipeline is wired whole;"
            f" --until build works, and so does gangline run --from or --until without a pipeline"
        )


class OnceObserver(SilentObserver):
    """Of the parts that a run is driven in, one beginning and one end are told."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self.record: Record | None = None
        self._ended = False

    def run_started(self, record: Record) -> None:
        if self.record is None:
            self._observer.run_started(record)
        self.record = record

    def run_ended(self, record: Record) -> None:
        self.record, self._ended = record, True

    def goes_on(self) -> None:
        """What ended was a part."""
        self._ended = False

    def end(self) -> None:
        """The last word, where some part came to its end."""
        if self.record is not None and self._ended:
            self._observer.run_ended(self.record)

    def stage_started(self, name: str) -> None:
        self._observer.stage_started(name)

    def progress(self, stage: str, event: GangEvent) -> None:
        self._observer.progress(stage, event)

    def stage_ended(self, name: str, info: StageInfo) -> None:
        self._observer.stage_ended(name, info)

    def note(self, text: str) -> None:
        self._observer.note(text)
