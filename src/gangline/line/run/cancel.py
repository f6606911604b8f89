"""Cancellation of runs: on request, or because a newer commit of the branch supersedes them.

The request is written into the record first, so that a driver that starts meanwhile stops instead of starting the gang
again. Without a driver the gangs are stopped and the run is ended here.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gangline.errors import CancelledError, CapacityError, GanglineError, UsageError
from gangline.launch.protocol import Launcher
from gangline.line.gangs.follow import stopped_text
from gangline.line.gangs.launchers import open_launcher
from gangline.line.record import runs, states
from gangline.line.record.context import RunContext, unchanged
from gangline.line.record.observer import Observer, SilentObserver
from gangline.line.record.runs import open_runs
from gangline.line.record.store import RecordStore
from gangline.line.request.targets import site_of
from gangline.line.run import lease
from gangline.signing.record_seal import Sealer
from gangline.spec import identity
from gangline.spec.config.site import Site
from gangline.spec.globs import any_matches
from gangline.spec.plan import Role
from gangline.spec.record import Driver, Record
from gangline.spec.run_flags import search_of, stopped_early
from gangline.storage import site_paths
from gangline.storage.s3.run_credentials import revoke_credentials
from gangline.units import now

STOP_SECONDS = 180.0
"""A driver sees the request within a second; then its gang saves, and a keeper that hangs is killed."""


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
    """Stop `run` and return once none of its gangs is left; repeating it is harmless.

    Args:
        repo: Folder of the line.
        run: Run id or a unique beginning of one.
        site: Where it runs.
        environ: For secret references.
        reason: One sentence for the record.
        save: Let ranks write a checkpoint first.
        observer: Shows what is waited for.

    Raises:
        UsageError: There is no such run.
        CapacityError: Its driver did not stop it in time.
    """
    observer = observer or SilentObserver()
    store = site_paths.open_site_store(repo, site, environ)
    record = runs.find_run(store, run)
    records = RecordStore.of(store, record)  # a cancellation request needs no key
    launcher = open_launcher(repo, site=site_of(record, site), environ=environ, store=store)
    record = records.change(lambda each: states.request_cancel(each, reason))
    if record.run.state == "ended" or not save:
        stop_gangs(record, launcher, reason=reason, save=save)
    if record.run.state == "ended":
        revoke_credentials(store, records.prefix)
    deadline = time.monotonic() + STOP_SECONDS
    while record.run.state == "open":
        if time.monotonic() > deadline:
            raise CapacityError(
                f"{record.run.id}: cancellation is recorded, but its driver did not stop it within {STOP_SECONDS:.0f} s"
            )
        if not lease.is_held(lease.read_lease(store, records.prefix), now=time.time()):
            own = replace(records, sealer=Sealer.of(site, environ))
            return end_cancelled_run(own, record, launcher, save=save, observer=observer)
        observer.note(f"waiting for {record.run.driver.holder or 'its driver'} to stop {record.run.id}")
        time.sleep(0.5)
        record = records.read() or record
    return record


def end_cancelled_run(
    records: RecordStore, record: Record, launcher: Launcher, *, save: bool, observer: Observer
) -> Record:
    """End a run without a driver: become its driver, stop its gangs, write the verdict.

    Raises:
        CapacityError: Another process became its driver first.
        IntegrityError: The record's seal is invalid, or `records` has no key.
    """
    holder = lease.this_process()
    acquired = lease.acquire_lease(records.store, records.prefix, holder=holder, at_least=record.run.driver.token)
    driver = Driver(kind=record.run.driver.kind, holder=holder, token=acquired.token)
    reason = record.run.cancel_requested or "cancelled"
    with lease.renewed_lease(records.store, records.prefix, acquired, on_problem=observer.note):
        records.change(unchanged, driver=driver)
        stop_gangs(record, launcher, reason=reason, save=save)
        reason = "; ".join(filter(None, [reason, _stopped_text(record, launcher)]))
        ended = records.change(
            lambda each: states.end_run(
                each, states.cancel_verdict(each), now=now(), reason=reason, exit_code=CancelledError.exit_code
            ),
            driver=driver,
        )
        runs.unmark_open(records.store, ended)
        revoke_credentials(records.store, records.prefix)
        return ended


def _stopped_text(record: Record, launcher: Launcher) -> str:
    """What its training gang had saved; empty: there is none."""
    name = record.gang.name if record.gang else ""
    return stopped_text(launcher.collect(name)) if name and launcher.status(name).state == "ended" else ""


def stop_gangs(record: Record, launcher: Launcher, *, reason: str, save: bool) -> None:
    """Stop every gang of the run, of all attempts, and its model code outside of gangs; returns once none runs."""
    launcher.cancel_modules(record.run.id)
    chains: list[tuple[Role, int]] = [(role, 0) for role in identity.ROLES]
    chains += [("evaluate", chain) for chain in range(1, len(identity.seed_gangs(record)) + 1)]
    chains += [("train", worker) for worker in identity.worker_gangs(record)]
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


def supersede(ctx: RunContext) -> None:
    """Cancel older open runs of this branch; those without a driver are ended here.

    On branches that publish, every commit runs to its end. A run that cannot be cancelled is noted and does not stop
    this one; a sweep finds it again.
    """
    branch = ctx.record.commit.branch
    if branch is None or ctx.line.trigger.supersede != "cancel" or any_matches(branch, ctx.line.publish.branches):
        return
    if stopped_early(ctx.record) or search_of(ctx.record):  # it measures one commit and does not represent its branch
        return
    for older in list(open_runs(ctx.store, ctx.record.run.project)):
        if _is_older(ctx.record, older) and not _is_newer_commit(ctx, older):
            try:
                _cancel_superseded(ctx, older)
            except GanglineError as error:
                ctx.record_event("resolve", "supersede", f"{older.run.id} could not be stopped: {error}")


def _is_older(record: Record, other: Record) -> bool:
    same_branch = other.commit.branch == record.commit.branch
    return (
        same_branch
        and not stopped_early(other)
        and not search_of(other)
        and other.commit.sha != record.commit.sha
        and other.run.created <= record.run.created
    )


def _is_newer_commit(ctx: RunContext, other: Record) -> bool:
    """Two pushes may be resolved in reverse order: the earlier commit does not stop the later one."""
    return ctx.repository.has(other.commit.sha) and ctx.repository.is_ancestor(ctx.record.commit.sha, other.commit.sha)


def _cancel_superseded(ctx: RunContext, older: Record) -> None:
    records = RecordStore.of(ctx.store, older, ctx.sealer)
    reason = f"{states.SUPERSEDED}{ctx.record.run.id}"
    requested = records.change(lambda record: states.request_cancel(record, reason))
    ctx.record_event("resolve", "supersede", f"{older.run.id} is superseded: a newer commit of {older.commit.branch}")
    if not lease.is_held(lease.read_lease(ctx.store, records.prefix), now=time.time()):
        end_cancelled_run(records, requested, ctx.launcher, save=False, observer=ctx.observer)
