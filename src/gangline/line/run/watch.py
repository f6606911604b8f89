"""Watching a run that another process drives: stages from the record, progress from the gang; nothing is changed."""

import time
from collections.abc import Mapping
from pathlib import Path

from gangline.launch.protocol import Launcher
from gangline.line.gangs.launchers import open_launcher
from gangline.line.record import runs
from gangline.line.record.observer import Observer
from gangline.line.record.store import RecordStore
from gangline.line.request.targets import site_of
from gangline.line.run import lease
from gangline.spec import identity
from gangline.spec.config.site import Site
from gangline.spec.plan import Role
from gangline.spec.record import STAGES, Record
from gangline.spec.run_flags import FINAL, stage
from gangline.storage import site_paths

_GANG_STAGES: tuple[Role, ...] = ("train", "evaluate", "prove")


def follow_run(
    repo: Path, run: str, *, site: Site, environ: Mapping[str, str], observer: Observer, poll_seconds: float = 1.0
) -> Record:
    """Tell `observer` what happens to `run` until it has ended, or until nobody drives it.

    Raises:
        UsageError: There is no such run.
    """
    store = site_paths.open_site_store(repo, site, environ)
    record = runs.find_run(store, run)
    records = RecordStore.of(store, record)
    site = site_of(record, site)
    launcher = open_launcher(repo, site=site, environ=environ, store=store, note=observer.note)
    observer.run_started(record)
    told: set[str] = set()
    while not _is_over(record):
        driven = lease.is_held(lease.read_lease(store, records.prefix), now=time.time())
        record = records.read() or record
        _tell_stages(record, told, observer)
        if not driven:
            break
        _tell_gang(record, told, launcher, observer)
        time.sleep(poll_seconds)
    _tell_stages(record, told, observer)
    if record.run.state == "open":
        observer.note(f"nobody drives {record.run.id}; gangline run goes on with it")
    observer.run_ended(record)
    return record


def running_gangs(record: Record) -> tuple[Role, tuple[str, ...]] | None:
    """The stage that gangs work at now, one after the other, and their names; None: no such stage is running."""
    running = next((name for name in _GANG_STAGES if stage(record, name).state == "running"), None)
    if running is None:
        return None
    if running == "train" and record.gang is not None:
        return running, (record.gang.name,)
    seeds = identity.seed_gangs(record) if running == "evaluate" else {}
    return running, tuple(seeds.values()) or (identity.gang_name(record.run.id, running),)


def _is_over(record: Record) -> bool:
    return record.run.state == "ended" and stage(record, "report").state in FINAL


def _tell_stages(record: Record, told: set[str], observer: Observer) -> None:
    for name in STAGES:
        info = stage(record, name)
        if info.state != "waiting" and f"{name} started" not in told:
            told.add(f"{name} started")
            observer.stage_started(name)
        if info.state in FINAL and f"{name} ended" not in told:
            told.add(f"{name} ended")
            observer.stage_ended(name, info)


def _tell_gang(record: Record, told: set[str], launcher: Launcher, observer: Observer) -> None:
    """Pass on the events of the gang that runs now, once, until it has ended."""
    found = running_gangs(record)
    if found is None:
        return
    running, gangs = found
    gang = next((each for each in gangs if each not in told), None)
    if gang is None or launcher.status(gang).state == "absent":
        return
    told.add(gang)
    for event in launcher.follow(gang):
        observer.progress(running, event)
        if event.end is not None:
            return
