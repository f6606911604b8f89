"""Deletes gangs whose run has ended or that nobody follows, by what the records say: nothing has to be remembered."""

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from gangline.build.virtualenv import UnusedEnvironment, environments_folder, sweep_environments
from gangline.checkpoint.format.retention import collect_left_files
from gangline.errors import IntegrityError, UsageError
from gangline.launch.protocol import Life, SweepResult
from gangline.line.gangs.launchers import checkpoint_key, open_launcher
from gangline.line.record import runs
from gangline.line.record.store import RecordStore
from gangline.line.request.targets import parse_target, with_target
from gangline.line.request.trust import checkpoint_owner
from gangline.line.run import lease
from gangline.spec.config.site import Site
from gangline.spec.gang.one_shot_pod import BUNDLE_SECONDS, BUNDLES
from gangline.storage import site_paths
from gangline.storage.objects.multipart import abort_left_uploads
from gangline.storage.objects.protocol import ObjectStore, list_all
from gangline.storage.s3.run_credentials import credential_owners, revoke_credentials


def sweep(
    repo: Path, *, site: Site, environ: Mapping[str, str], dry_run: bool = False, with_outputs: bool = False
) -> list[SweepResult]:
    """Gangs that were found, and whether they were deleted; what crashed uploads and saves left goes, too.

    With `dry_run` nothing is deleted; folders with files that a program wrote and nobody collected go `with_outputs`
    alone.
    """
    store = site_paths.open_site_store(repo, site, environ)
    lives: dict[str, Life] = {}

    def ask(run: str) -> Life:
        lives[run] = life_of(store, run, orphan_seconds=site.limits.orphan_seconds, now=time.time())
        return "unknown" if dry_run else lives[run]

    if not dry_run:
        _revoke_left_credentials(store)
        for prefix in ("runs/", BUNDLES):
            abort_left_uploads(store, prefix, older_than_seconds=site.limits.orphan_seconds)
        _delete_left_bundles(store)
    found = [
        swept
        for each in _sites(site)
        for swept in open_launcher(repo, site=each, environ=environ, store=store).sweep(
            now=datetime.now(UTC), life=ask, with_outputs=with_outputs
        )
    ]
    for run in {each.run for each in found if each.deleted and lives[each.run] == "ended"}:
        record = runs.find_run(store, run)
        key = checkpoint_key(site, environ, checkpoint_owner(record))
        collect_left_files(store, f"{record.gang_prefix}/checkpoints", key)
    return [replace(each, life=lives[each.run]) for each in found]


def sweep_unused(
    repo: Path, *, site: Site, environ: Mapping[str, str], dry_run: bool = False
) -> list[UnusedEnvironment]:
    """Environments of locks on this machine, and whether they were deleted: a run that goes on keeps its own."""
    keep_seconds = max(site.environments.keep_days * 86_400, site.limits.run_seconds)
    root = environments_folder(environ, site_paths.home(repo))
    return sweep_environments(root, keep_seconds=keep_seconds, dry_run=dry_run)


def _revoke_left_credentials(store: ObjectStore) -> None:
    """Of runs that have ended: their drivers died before they did it. Of a run without a record nobody knows."""
    for prefix in credential_owners(store):
        try:
            record = RecordStore(store, prefix).read()
        except IntegrityError:
            continue
        if record is not None and record.run.state == "ended":
            revoke_credentials(store, prefix)


def _delete_left_bundles(store: ObjectStore) -> None:
    """What drivers that died gave to pods: nobody can open one once its URL has ended."""
    for entry in list(list_all(store, BUNDLES)):
        if time.time() - entry.modified > BUNDLE_SECONDS:
            store.delete(entry.key)


def _sites(site: Site) -> list[Site]:
    """`site` by every place where its gangs may be: this machine, and its cluster where it has one."""
    return [with_target(site, place) for place in dict.fromkeys(("local", parse_target(site.launch.target)[0]))]


def life_of(store: ObjectStore, run: str, *, orphan_seconds: float, now: float) -> Life:
    """What the record and the lease say about whoever needs the gangs of `run`."""
    try:
        record = runs.find_run(store, run)
    except UsageError:
        return "unknown"
    if record.run.state == "ended":
        return "ended"
    held = lease.read_lease(store, RecordStore.of(store, record).prefix)
    if held is not None and not lease.is_held(held, now=now) and held.expires + orphan_seconds < now:
        return "orphan"
    return "followed"
