"""Cancellation of a run on a pipelines server: mark the record, stop the pipeline, then the gangs, twice.

A task that is retried while the pipeline stops finds the mark in the record and starts nothing; what it had started
just before is stopped by the second pass.
"""

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from gangline.errors import CapacityError
from gangline.kfp.client import KfpClient
from gangline.kfp.pipeline_names import run_id_of_url
from gangline.kfp.server_runner import open_client
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
    """As `line.cancel.cancel_run`, the driver above first; for a run without a pipeline it is the same.

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
    if client.run(id_).run != record.run.id:  # a link is a word of the record, and not every writer's word is true
        return stop()
    client.terminate(id_)
    stop()
    _await_end(client, id_, observer or SilentObserver())
    return stop()


def _await_end(client: KfpClient, id_: str, tell: Observer) -> None:
    deadline = time.monotonic() + END_SECONDS
    while not (stands := client.run(id_)).is_final:
        if time.monotonic() > deadline:
            raise CapacityError(
                f"pipeline run {id_} was asked to stop and is {stands.state} after {END_SECONDS:.0f} s; nothing of its"
                " gangs is left; gangline cancel looks again"
            )
        tell.note(f"waiting for pipeline run {id_} to end, it is {stands.state}")
        time.sleep(POLL_SECONDS)
