"""Sweep: deletes gangs of runs that have ended or lost their driver, and what crashed processes left."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
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
from gangline.line.request.trust import FOLDER, checkpoint_owner
from gangline.line.run import lease
from gangline.spec.config.site import Site
from gangline.spec.gang.one_shot_pod import BUNDLE_SECONDS, BUNDLES
from gangline.storage import site_paths
from gangline.storage.folder.safe_paths import delete_tree
from gangline.storage.objects.multipart import abort_left_uploads
from gangline.storage.objects.protocol import ObjectStore, list_all
from gangline.storage.s3.run_credentials import credential_owners, revoke_credentials


def sweep(
    repo: Path, *, site: Site, environ: Mapping[str, str], dry_run: bool = False, with_outputs: bool = False
) -> list[SweepResult]:
    """The gangs found, and whether they were deleted; also deletes what crashed uploads and saves left.

    With `dry_run` nothing is deleted. Folders with outputs of a program that were not collected are deleted only
    `with_outputs`.
    """
    store = site_paths.open_site_store(repo, site, environ)
    lives: dict[str, Life] = {}

    def life(run: str) -> Life:
        lives[run] = life_of(store, run, orphan_seconds=site.limits.orphan_seconds, now=time.time())
        return "unknown" if dry_run else lives[run]

    if not dry_run:
        _revoke_left_credentials(store)
        for prefix in ("runs/", BUNDLES):
            abort_left_uploads(store, prefix, older_than_seconds=site.limits.orphan_seconds)
        for entry in list(list_all(store, BUNDLES)):
            if time.time() - entry.modified > BUNDLE_SECONDS:
                store.delete(entry.key)
    results = [
        swept
        for each in _sites(site)
        for swept in open_launcher(repo, site=each, environ=environ, store=store).sweep(
            now=datetime.now(UTC), life=life, with_outputs=with_outputs
        )
    ]
    for run in {result.run for result in results if result.deleted and lives[result.run] == "ended"}:
        record = runs.find_run(store, run)
        key = checkpoint_key(site, environ, checkpoint_owner(record))
        collect_left_files(store, f"{record.gang_prefix}/checkpoints", key)
    return [replace(result, life=lives[result.run]) for result in results]


def sweep_unused(
    repo: Path, *, site: Site, environ: Mapping[str, str], dry_run: bool = False
) -> list[UnusedEnvironment]:
    """Environments of locks on this machine, and whether they were deleted; those of running runs stay."""
    root = environments_folder(environ, site_paths.home(repo))
    return sweep_environments(root, keep_seconds=_keep_seconds(site), dry_run=dry_run)


@dataclass(frozen=True, kw_only=True, slots=True)
class UnusedHome:
    """Home of a branch that a sweep examined."""

    name: str
    days: float
    """Time since its last use."""
    is_over: bool
    """It was unused for too long."""
    deleted: bool


def sweep_homes(repo: Path, *, site: Site, dry_run: bool = False) -> list[UnusedHome]:
    """Homes of branches on this machine, and whether they were deleted; those of running runs stay."""
    homes = []
    for folder in sorted((site_paths.home(repo) / FOLDER).glob("*")):
        idle = time.time() - folder.lstat().st_mtime
        is_over = idle > _keep_seconds(site)
        if is_over and not dry_run:
            delete_tree(folder)
        homes.append(UnusedHome(name=folder.name, days=idle / 86_400, is_over=is_over, deleted=is_over and not dry_run))
    return homes


def _keep_seconds(site: Site) -> float:
    return max(site.environments.keep_days * 86_400, site.limits.run_seconds)


def _revoke_left_credentials(store: ObjectStore) -> None:
    """Revoke credentials of runs that have ended, whose drivers crashed before doing so."""
    for prefix in credential_owners(store):
        try:
            record = RecordStore(store, prefix).read()
        except IntegrityError:
            continue
        if record is not None and record.run.state == "ended":
            revoke_credentials(store, prefix)


def _sites(site: Site) -> list[Site]:
    """`site` with every target where its gangs may be: this machine, and its cluster if it has one."""
    return [with_target(site, target) for target in dict.fromkeys(("local", parse_target(site.launch.target)[0]))]


def life_of(store: ObjectStore, run: str, *, orphan_seconds: float, now: float) -> Life:
    """Whether the gangs of `run` are still needed, by its record and lease."""
    try:
        record = runs.find_run(store, run)
    except UsageError:
        return "unknown"
    if record.run.state == "ended":
        return "ended"
    last = lease.read_lease(store, RecordStore.of(store, record).prefix)
    if last is not None and not lease.is_held(last, now=now) and last.expires + orphan_seconds < now:
        return "orphan"
    return "followed"
