"""Progress of a run, read within seconds: what its gang does, from the events that exist already.

For one line of text (a build's description, a status), whether or not the gang reports anything meanwhile; `run.watch`
follows to the end. Nothing is changed.
"""

import queue
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from gangline.errors import GanglineError
from gangline.launch.protocol import GangEvent
from gangline.line.gangs.launchers import open_launcher
from gangline.line.request.targets import site_of
from gangline.line.run.watch import running_gangs
from gangline.report.progress import StageOutlook, StageProgress
from gangline.spec.config.site import Site
from gangline.spec.record import Record
from gangline.storage import site_paths

QUIET_SECONDS = 0.7


def read_progress(
    repo: Path, record: Record, *, site: Site, environ: Mapping[str, str], seconds: float = 5.0
) -> StageProgress | None:
    """The stage that has a gang now, as far as it got; None: none has, or nobody can see it from here.

    Args:
        repo: Folder of the line.
        record: Of the run.
        site: Where it runs.
        environ: For secret references.
        seconds: At most so long.
    """
    running = running_gangs(record)
    if record.run.state == "ended" or running is None:
        return None
    stage, gangs = running
    outlook = StageOutlook()
    outlook.learn(record)
    progress = outlook.begin(stage)
    place = site_of(record, site)
    try:
        store = site_paths.open_site_store(repo, site, environ)
        launcher = open_launcher(repo, site=place, environ=environ, store=store)
        there = [each for each in gangs if launcher.status(each).state != "absent"]
        if not there:
            return None
    except GanglineError:
        return None  # the line is drawn without
    for event in _now(launcher.follow(there[-1]), seconds):
        progress.see(event)
    return progress


def _now(events: Iterator[GangEvent], seconds: float) -> Iterator[GangEvent]:
    """What comes until nothing more does for a moment, or time is up."""
    box: queue.Queue[GangEvent | None] = queue.Queue()
    over = threading.Event()
    threading.Thread(target=_feed, args=(events, box, over), name="glance", daemon=True).start()
    deadline = time.monotonic() + seconds
    patience = seconds
    try:
        while (event := box.get(timeout=max(min(patience, deadline - time.monotonic()), 0.0))) is not None:
            yield event
            patience = QUIET_SECONDS
    except queue.Empty:
        return
    finally:
        over.set()


def _feed(events: Iterator[GangEvent], box: "queue.Queue[GangEvent | None]", over: threading.Event) -> None:
    try:
        for event in events:
            box.put(event)
            if over.is_set():
                return
    except GanglineError:
        pass  # what was seen until now is drawn
    finally:
        box.put(None)
