"""Cancellation of a run: marks its record; without a driver, stops the gangs and ends the run here.

The mark comes first, so that a driver that starts meanwhile stops by itself instead of starting the gang again.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gangline.errors import CancelledError, CapacityError, UsageError
from gangline.launch.protocol import Launcher
from gangline.line.gangs.launchers import open_launcher
from gangline.line.record import runs, states
from gangline.line.record.context import unchanged
from gangline.line.record.observer import Observer, SilentObserver
from gangline.line.record.store import RecordStore
from gangline.line.request.targets import site_of
from gangline.line.run import lease
from gangline.signing.record_seal import Sealer
from gangline.spec import identity
from gangline.spec.config.site import Site
from gangline.spec.plan import Role
from gangline.spec.record import Driver, Record
from gangline.storage import site_paths
from gangline.storage.s3.run_credentials import revoke_credentials
from gangline.units import now

OBEY_SECONDS = 180.0
"""A driver sees the mark within a second; its gang has its grace to save, and a frozen keeper is killed after that."""
_ROLES: tuple[Role, ...] = ("train", "evaluate", "prove")


def cancel_run(
    repo: Path,
    run: str,
    *,
    site: Site,
    environ: Mapping[str, str],
    reason: str,
    save: bool = True,
    observer: Observer | None = None,
) -> Record:
    """Stop `run` and return when none of its gangs is left; again is harmless.

    Args:
        repo: Folder of the line.
        run: Run id or the beginning of one.
        site: Where it runs.
        environ: For secret references.
        reason: One sentence for the record.
        save: Let ranks write a checkpoint first.
        observer: Told what is waited for.

    Raises:
        UsageError: There is no such run.
        CapacityError: Its driver did not obey in time.
    """
    tell = observer or SilentObserver()
    store = site_paths.open_site_store(repo, site, environ)
    record = runs.find_run(store, run)
    records = RecordStore.of(store, record)  # to ask a run to stop takes no key
    launcher = open_launcher(repo, site=site_of(record, site), environ=environ, store=store)
    record = records.change(lambda each: states.request_cancel(each, reason))
    if record.run.state == "ended" or not save:
        stop_gangs(record, launcher, reason=reason, save=save)
    if record.run.state == "ended":
        revoke_credentials(store, records.prefix)
    deadline = time.monotonic() + OBEY_SECONDS
    while record.run.state == "open":
        if time.monotonic() > deadline:
            raise CapacityError(f"{record.run.id} is marked, but its driver did not stop it in {OBEY_SECONDS:.0f} s")
        if not lease.is_held(lease.read_lease(store, records.prefix), now=time.time()):
            keyed = replace(records, sealer=Sealer.of(site, environ))
            return end_cancelled_run(keyed, record, launcher, save=save)
        tell.note(f"waiting for {record.run.driver.holder or 'its driver'} to stop {record.run.id}")
        time.sleep(0.5)
        record = records.read() or record
    return record


def end_cancelled_run(records: RecordStore, record: Record, launcher: Launcher, *, save: bool) -> Record:
    """End a run that nobody drives: become its driver, stop its gangs, write the verdict.

    Raises:
        CapacityError: Somebody drives after all.
        IntegrityError: The record is not as a trusted driver left it, or `records` has no key.
    """
    holder = lease.this_process()
    mine = lease.acquire_lease(records.store, records.prefix, holder=holder, at_least=record.run.driver.token)
    driver = Driver(kind=record.run.driver.kind, holder=holder, token=mine.token)
    reason = record.run.cancel_requested or "cancelled"
    try:
        records.change(unchanged, driver=driver)
        stop_gangs(record, launcher, reason=reason, save=save)
        ended = records.change(
            lambda each: states.end_run(
                each, states.cancel_verdict(each), now=now(), reason=reason, exit_code=CancelledError.exit_code
            ),
            driver=driver,
        )
        runs.unmark_open(records.store, ended)
        revoke_credentials(records.store, records.prefix)
        return ended
    finally:
        lease.release_lease(records.store, records.prefix, mine)


def stop_gangs(record: Record, launcher: Launcher, *, reason: str, save: bool) -> None:
    """Stop every gang that this run may have, later attempts included; returns when none runs."""
    chains = [(role, 0) for role in _ROLES]
    chains += [("evaluate", chain) for chain in range(1, len(identity.seed_gangs(record)) + 1)]
    for role, chain in chains:
        attempt = 1
        while launcher.status(gang := _gang(record, role, chain, attempt)).state != "absent":
            try:
                launcher.cancel(gang, reason=reason, save=save)
            except UsageError:
                break
            attempt += 1


def _gang(record: Record, role: Role, chain: int, attempt: int) -> str:
    return identity.gang_name(record.run.id, role, identity.gang_number(chain, attempt))
