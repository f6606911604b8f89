"""Cancellation of a run on a pipelines server: mark the record, stop the pipeline, then the gangs, twice.

A task that is retried while the pipeline stops finds the mark in the record and starts nothing; gangs that it started
just before are stopped by the second pass.
"""

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from gangline.errors import CapacityError
from gangline.kfp.client import KfpClient
from gangline.kfp.server_runner import open_client, run_id_of_url
from gangline.line.record import runs, states
from gangline.line.record.observer import Observer, SilentObserver
from gangline.line.record.store import RecordStore
from gangline.line.run.cancel import cancel_run
from gangline.spec.config.site import Site
from gangline.spec.record import Record
from gangline.storage import site_paths

END_SECONDS = 120.0
"""A server ends a stopped pipeline some 20 s later."""
POLL_SECONDS = 1.0


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
        time.sleep(POLL_SECONDS)
