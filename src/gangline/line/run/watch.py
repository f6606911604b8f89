"""Watching a run that another process drives: to its end, or its progress within seconds; nothing is changed."""

import queue
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from gangline.errors import GanglineError
from gangline.launch.protocol import GangEvent, Launcher
from gangline.line.gangs.follow import read_in_background
from gangline.line.gangs.launchers import open_launcher
from gangline.line.record import runs
from gangline.line.record.observer import Observer
from gangline.line.record.store import RecordStore
from gangline.line.request.targets import site_of
from gangline.line.run import lease
from gangline.report.progress import StageOutlook, StageProgress
from gangline.spec import identity
from gangline.spec.config.site import Site
from gangline.spec.plan import Role
from gangline.spec.record import STAGES, Record
from gangline.spec.run_flags import FINAL, stage
from gangline.storage import site_paths

QUIET_SECONDS = 0.7
"""Silence after the first event that ends `read_progress`."""


def follow_run(repo: Path, run: str, *, site: Site, environ: Mapping[str, str], observer: Observer) -> Record:
    """Report `run` to `observer` until it has ended, or has no driver any more.

    Raises:
        UsageError: There is no such run.
    """
    store = site_paths.open_site_store(repo, site, environ)
    record = runs.find_run(store, run)
    records = RecordStore.of(store, record)
    site = site_of(record, site)
    launcher = open_launcher(repo, site=site, environ=environ, store=store, note=observer.note)
    observer.run_started(record)
    reported: set[str] = set()
    while not (record.run.state == "ended" and stage(record, "report").state in FINAL):
        is_driven = lease.is_held(lease.read_lease(store, records.prefix), now=time.time())
        record = records.read() or record
        _report_stages(record, reported, observer)
        if not is_driven:
            break
        _report_gang(record, reported, launcher, observer)
        time.sleep(1.0)
    _report_stages(record, reported, observer)
    if record.run.state == "open":
        observer.note(f"{record.run.id} has no driver; gangline run resumes it")
    observer.run_ended(record)
    return record


def running_gangs(record: Record) -> tuple[Role, tuple[str, ...]] | None:
    """The running stage that has gangs, and their names in order; None if no such stage is running."""
    running = next((name for name in identity.ROLES if stage(record, name).state == "running"), None)
    if running is None:
        return None
    if running == "train" and record.gang is not None:
        return running, (record.gang.name,)
    seeds = identity.seed_gangs(record) if running == "evaluate" else {}
    return running, tuple(seeds.values()) or (identity.gang_name(record.run.id, running),)


def _report_stages(record: Record, reported: set[str], observer: Observer) -> None:
    for name in STAGES:
        info = stage(record, name)
        if info.state != "waiting" and f"{name} started" not in reported:
            reported.add(f"{name} started")
            observer.stage_started(name)
        if info.state in FINAL and f"{name} ended" not in reported:
            reported.add(f"{name} ended")
            observer.stage_ended(name, info)


def _report_gang(record: Record, reported: set[str], launcher: Launcher, observer: Observer) -> None:
    """Forward the events of the running gang, once, until it has ended."""
    found = running_gangs(record)
    if found is None:
        return
    running, gangs = found
    gang = next((each for each in gangs if each not in reported), None)
    if gang is None or launcher.status(gang).state == "absent":
        return
    reported.add(gang)
    for event in launcher.follow(gang):
        observer.progress(running, event)
        if event.end is not None:
            return


def read_progress(
    repo: Path, record: Record, *, site: Site, environ: Mapping[str, str], seconds: float = 5.0
) -> StageProgress | None:
    """Progress of the running stage from the events that its gang has reported; for one line of text.

    None if no stage has a gang, or the gang cannot be reached from here.

    Args:
        repo: Folder of the line.
        record: Of the run.
        site: Where it runs.
        environ: For secret references.
        seconds: Read events for at most so long.
    """
    running = running_gangs(record)
    if record.run.state == "ended" or running is None:
        return None
    name, gangs = running
    outlook = StageOutlook()
    outlook.learn(record)
    progress = outlook.begin(name)
    try:
        store = site_paths.open_site_store(repo, site, environ)
        launcher = open_launcher(repo, site=site_of(record, site), environ=environ, store=store)
        present = [gang for gang in gangs if launcher.status(gang).state != "absent"]
        if not present:
            return None
    except GanglineError:
        return None  # the line is shown without progress
    for event in _events_so_far(launcher.follow(present[-1]), seconds):
        progress.see(event)
    return progress


def _events_so_far(events: Iterator[GangEvent], seconds: float) -> Iterator[GangEvent]:
    """Events until none comes for a moment, an error, or the time is up."""
    deadline = time.monotonic() + seconds
    wait_seconds = seconds
    with read_in_background(events) as items:
        while True:
            try:
                item = items.get(timeout=max(min(wait_seconds, deadline - time.monotonic()), 0.0))
            except queue.Empty:
                return
            if item is None or isinstance(item, Exception):
                return  # progress is shown as far as it is known
            yield item
            wait_seconds = QUIET_SECONDS
