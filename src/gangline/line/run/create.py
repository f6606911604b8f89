"""Creation of runs: finds the run of a request, or creates it with commit, base and inputs fixed."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gangline.build import own_environment
from gangline.errors import ConfigError
from gangline.line.record import runs
from gangline.line.record.earlier_runs import EarlierRuns, find_earlier_runs
from gangline.line.record.store import RecordStore
from gangline.line.request.project_claim import claim_project
from gangline.line.request.run_request import RunRequest
from gangline.signing.record_seal import Sealer
from gangline.spec.config.load import PROTECTED_TABLES, effective, line_digest, table_digests
from gangline.spec.config.site import Site
from gangline.spec.launchers import RanksAt
from gangline.spec.record import UNPROTECTED, Base, CommitInfo, Event, Inputs, Record, RunInfo, run_prefix
from gangline.spec.run_flags import TRIAL
from gangline.storage.objects.blobs import put_blob
from gangline.storage.objects.protocol import ObjectStore
from gangline.units import now

MAX_CHANGED = 100
_SHALLOW = (
    "no base was found, but this clone is shallow and lacks earlier commits; git fetch --unshallow, or configure a"
    " deeper clone on the build server"
)


@dataclass(frozen=True, slots=True)
class FoundRun:
    """The run of a request."""

    record: Record
    earlier_runs: EarlierRuns | None
    """Earlier runs, if this one is new."""


def find_or_create_run(
    store: ObjectStore,
    request: RunRequest,
    *,
    again: bool,
    target: RanksAt,
    site: Site,
    sealer: Sealer,
    search: str | None = None,
) -> FoundRun:
    """The run of `request`: its newest attempt, or with `again` the next one if the newest has ended.

    A new run has its ranks at `target`, and is a trial of `search` if there is one.

    Raises:
        IntegrityError: The seal of the newest attempt is invalid.
        ConfigError: The project name belongs to another repository or folder, or that attempt is of another line of
            the commit.
    """
    address = claim_project(store, request, site=site, sealer=sealer)
    newest, attempt = _newest(store, request)
    if newest is not None and sealer.holds(newest):
        _require_same_line(newest, request)
    if newest is not None and not (again and newest.run.state == "ended"):
        return FoundRun(sealer.check(newest), earlier_runs=None)
    earlier = find_earlier_runs(
        store,
        request.repository,
        project=request.line.project.name,
        commit=request.commit,
        run=request.run_id(attempt + 1),
        holds=sealer.holds,
    )
    record = _describe(store, request, attempt + 1, earlier.base, target, repository=address.text, search=search)
    runs.mark_open(store, record)
    created = RecordStore.of(store, record, sealer).create(record)
    return FoundRun(sealer.check(created), earlier_runs=earlier)


def _require_same_line(newest: Record, request: RunRequest) -> None:
    if newest.commit.tree != request.tree:
        project, folder = request.line.project.name, request.repository.prefix or "the top of the repository"
        raise ConfigError(
            f"project.name: run {newest.run.id} of this commit belongs to another line named {project!r}, in another"
            f" folder than {folder}; give each line of a repository its own name"
        )


def _newest(store: ObjectStore, request: RunRequest) -> tuple[Record | None, int]:
    newest: Record | None = None
    attempt = 0
    while True:
        prefix = run_prefix(request.line.project.name, request.commit, request.run_id(attempt + 1))
        record = RecordStore(store, prefix).read()
        if record is None:
            return newest, attempt
        newest, attempt = record, attempt + 1


def _describe(
    store: ObjectStore, request: RunRequest, attempt: int, base: Record | None, target: RanksAt, *, repository: str,
    search: str | None,
) -> Record:  # fmt: skip
    line = request.line
    return Record(
        run=RunInfo(
            id=request.run_id(attempt), project=line.project.name, attempt=attempt, created=now(), target=target
        ),
        commit=replace(_commit(store, request, base), repository=repository),
        inputs=Inputs(
            line=line_digest(line),
            tables=table_digests(line),
            seeds=tuple(range(line.train.seed, line.train.seed + line.evaluate.seeds)),
            overrides=request.overrides,
            versions=own_environment.software_versions(),
            values=effective(line),
        ),
        events=tuple(
            Event(time=now(), stage=stage, kind=kind, text=text) for stage, kind, text in _notes(request, base, search)
        ),
    )


def _notes(request: RunRequest, base: Record | None, search: str | None) -> Iterator[tuple[str, str, str]]:
    """Stage, event kind and text of notes on what the run is, how it is judged and whether it can be published.

    Where nothing was ever published the stage publish says why, and a first run does not begin with it.
    """
    if search:
        yield "resolve", TRIAL, search
    if dirty := request.dirty_note:
        yield "resolve", "rules", dirty
    if request.own_name not in (None, request.line.project.name):
        yield "resolve", "rules", _other_name(request)
    if unprotected := _unprotected(request):
        yield "publish" if _lacks_line(request) else "resolve", UNPROTECTED, unprotected
    if request.overrides:
        keys = ", ".join(request.overrides)
        yield "resolve", "rules", f"an experiment: {keys} on the command line; never a base, never published"
    if base is None and request.repository.is_shallow:
        yield "resolve", "rules", _SHALLOW


def _other_name(request: RunRequest) -> str:
    return (
        f"project.name is {request.line.project.name}, as the default branch says; {request.own_name}, which this"
        " line.toml says, counts once it is committed there"
    )


def _lacks_line(request: RunRequest) -> bool:
    """Whether there are no rules because the default branch has no line yet."""
    return request.protection.lacks_line and bool(request.rules_problem) and not request.branch_problem


def _unprotected(request: RunRequest) -> str:
    """Why the commit is on no branch that publishes; empty if it is on one."""
    if request.branch_problem:
        return f"nothing is published: {request.branch_problem}"
    if _lacks_line(request):
        return f"nothing is published: {request.rules_problem}"
    if request.rules_problem:
        return f"nothing is published, the rules of the default branch are not known: {request.rules_problem}"
    if request.rules == request.commit and request.trust == "own":
        wanted = ", ".join(request.line.publish.branches)
        return f"nothing is published from here: publish.branches names {wanted}, not the default branch"
    if request.rules is not None:
        tables = ", ".join(PROTECTED_TABLES)
        return (
            f"this commit is part of no branch that publishes: {tables} are those of commit"
            f" {request.rules[:8]} of the default branch"
        )
    return ""


def _commit(store: ObjectStore, request: RunRequest, base: Record | None) -> CommitInfo:
    repository = request.repository
    patch = repository.patch(repository.tree(request.commit), request.tree) if request.is_dirty else None
    changed = repository.changed(base.commit.tree, request.tree) if base and not base.commit.patch else ()
    return CommitInfo(
        sha=request.commit,
        tree=request.tree,
        branch=request.branch,
        subject=request.subject,
        pull_request=request.pull_request,
        trust=request.trust,
        protected=request.protected,
        rules=request.rules,
        patch=put_blob(store, patch) if patch is not None else None,
        base=Base(commit=base.commit.sha, run=base.run.id) if base else None,
        changed=changed[:MAX_CHANGED],
    )
