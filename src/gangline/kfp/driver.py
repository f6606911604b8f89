"""Run driven by Kubeflow Pipelines: resolved and built here, then given to the local runner or a server."""

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
from gangline.spec.launchers import RanksAt
from gangline.spec.record import Record, StageInfo
from gangline.spec.run_flags import FINAL, stage
from gangline.storage import site_paths

Driving = Literal["kfp-local", "kfp"]
LOCAL_STAGES = ("resolve", "build")
"""Stages before the pipeline is compiled, which needs the image."""


class _Where(TypedDict):
    """Arguments that every part of the run gets."""

    site: Site
    environ: Mapping[str, str]
    observer: "OnceObserver"


def drive(
    repo: Path,
    *,
    driving: Driving,
    site: Site,
    environ: Mapping[str, str],
    ranks_at: RanksAt | None = None,
    observer: Observer | None = None,
    **arguments: Unpack[RunArguments],
) -> Record:
    """Drive a run as `run_line` does, but a pipeline calls the stages from plan on; the record is the same.

    Args:
        repo: Folder of line.toml, in a git repository.
        driving: kfp's local runner, in processes of this machine, or the server of `kfp.endpoint`.
        site: Where it runs.
        environ: For secret references and the user's configuration folder.
        ranks_at: Where gangs run; None: as recorded, or as the site says.
        observer: Gets all events of the run.
        arguments: As `run_line`; but `start` is resolve or None and `until` resolve, build or None, because a pipeline
            has all stages, and `origin` is not a fork, because tasks have secrets.

    Raises:
        UsageError: Only a part of the pipeline is wanted.
        GanglineError: As `run_line`.
    """
    until = arguments.get("until")
    _require_whole_line(arguments.get("start"), until)
    if (origin := arguments.get("origin")) is not None and origin.trust == "fork":
        raise UsageError("a pipeline's tasks hold secrets, so it cannot run a fork's commit; use --driver here")
    once = OnceObserver(observer or SilentObserver())
    where: _Where = {"site": site, "environ": environ, "observer": once}
    try:
        record = _build(
            repo, {**arguments, "until": until or LOCAL_STAGES[-1]}, where, driving=driving, target=ranks_at
        )
        if until is None and record.run.state == "open":
            record = _run_pipeline(Repository.at(repo).root, record, driving=driving, **where)
    except GanglineError:
        if once.record is None or once.record.run.state == "open":
            raise
        whole: RunArguments = {**arguments, "again": False, "start": None, "until": None}
        run_line(repo, **whole, target=ranks_at, **where)
        raise
    finally:
        once.end()
    return raise_for_verdict(record)


def _build(repo: Path, arguments: RunArguments, where: _Where, *, driving: Driving, target: str | None) -> Record:
    """The run with its image; a run whose pipeline is running on a server is returned as it is."""
    try:
        return run_line(repo, **arguments, target=target, **where)
    except HeldError:
        site, environ = where["site"], where["environ"]
        store = site_paths.open_site_store(Repository.at(repo).root, site, environ)
        request = resolve_request(
            repo, commit=arguments.get("commit"), overrides=arguments.get("overrides", ()),
            strategy=arguments.get("strategy"), origin=arguments.get("origin"),
        )  # fmt: skip
        sealer = Sealer.of(site, environ)
        run = find_or_create_run(store, request, again=False, target="kubernetes", site=site, sealer=sealer)
        record = run.record
        if driving != "kfp" or "kfp" not in record.links:
            raise
        where["observer"].run_started(record)
        return record


def _run_pipeline(
    repo: Path, record: Record, *, driving: Driving, site: Site, environ: Mapping[str, str], observer: "OnceObserver"
) -> Record:
    """The run after its pipeline ended; draws the report if the pipeline did not."""
    observer.reopen()
    store = site_paths.open_site_store(repo, site, environ)
    run_pipeline = run_locally if driving == "kfp-local" else run_on_server
    record = run_pipeline(repo, record, site=site, environ=environ, store=store, observer=observer)
    if stage(record, "report").state not in FINAL:
        record = run_stage(repo, "report", record.run.id, site=site, environ=environ, observer=observer, kind="kfp")
    observer.run_ended(record)
    return record


def _require_whole_line(start: str | None, until: str | None) -> None:
    if start not in (None, "resolve") or until not in (None, *LOCAL_STAGES):
        raise UsageError(
            f"wanted the whole line, found --from {start} --until {until}: a pipeline has all stages;"
            " use --until build, or gangline run --from and --until without a pipeline"
        )


class OnceObserver(SilentObserver):
    """Forwards one start and one end of a run that is driven in several parts."""

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

    def reopen(self) -> None:
        """Forget the end of a part, because another one follows."""
        self._ended = False

    def end(self) -> None:
        """Forward the end, if a part has ended."""
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
