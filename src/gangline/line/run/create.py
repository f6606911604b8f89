"""Creation of runs: finds the run of a request, or creates it with commit, base and inputs fixed."""

from collections.abc import Iterator
from dataclasses import dataclass

from gangline.build import environment
from gangline.line.record import runs
from gangline.line.record.earlier_runs import EarlierRuns, find_earlier_runs
from gangline.line.record.store import RecordStore
from gangline.line.request.run_request import RunRequest
from gangline.line.request.targets import RanksAt
from gangline.signing.record_seal import Sealer
from gangline.spec.config.load import PROTECTED_TABLES, effective, line_digest, table_digests
from gangline.spec.record import UNPROTECTED, Base, CommitInfo, Event, Inputs, Record, RunInfo, run_prefix
from gangline.storage.objects.blobs import put_blob
from gangline.storage.objects.protocol import ObjectStore
from gangline.units import now

MAX_CHANGED = 100


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A run, and whether the question made it."""

    record: Record
    is_new: bool
    earlier_runs: EarlierRuns | None
    """Looked up for a new one."""


def find_or_create_run(
    store: ObjectStore, question: RunRequest, *, again: bool, target: RanksAt, sealer: Sealer
) -> FoundRun:
    """The run of `question`: its newest attempt, or with `again` the next one once the newest has ended.

    A new one gets its gangs at `target`, and a seal.

    Raises:
        IntegrityError: The record of the newest attempt does not hold.
    """
    newest, attempt = _newest(store, question)
    if newest is not None and not (again and newest.run.state == "ended"):
        return FoundRun(sealer.check(newest), is_new=False, earlier_runs=None)
    earlier = find_earlier_runs(
        store,
        question.repository,
        project=question.line.project.name,
        commit=question.commit,
        run=question.run_id(attempt + 1),
        holds=sealer.holds,
    )
    record = _describe(store, question, attempt + 1, earlier.base, target)
    runs.mark_open(store, record)
    born = RecordStore.of(store, record, sealer).create(record)
    return FoundRun(sealer.check(born), is_new=born.run.created == record.run.created, earlier_runs=earlier)


def _newest(store: ObjectStore, question: RunRequest) -> tuple[Record | None, int]:
    newest: Record | None = None
    attempt = 0
    while True:
        prefix = run_prefix(question.line.project.name, question.commit, question.run_id(attempt + 1))
        found = RecordStore(store, prefix).read()
        if found is None:
            return newest, attempt
        newest, attempt = found, attempt + 1


def _describe(store: ObjectStore, question: RunRequest, attempt: int, base: Record | None, target: RanksAt) -> Record:
    line = question.line
    return Record(
        run=RunInfo(
            id=question.run_id(attempt), project=line.project.name, attempt=attempt, created=now(), target=target
        ),
        commit=_commit(store, question, base),
        inputs=Inputs(
            line=line_digest(line),
            tables=table_digests(line),
            seeds=tuple(range(line.train.seed, line.train.seed + line.evaluate.seeds)),
            overrides=question.overrides,
            versions=environment.software_versions(),
            values=effective(line),
        ),
        events=tuple(Event(time=now(), stage="resolve", kind=kind, text=text) for kind, text in _notes(question)),
    )


def _notes(question: RunRequest) -> Iterator[tuple[str, str]]:
    """What people have to know of how the run will be judged, each with its kind."""
    if dirty := question.dirty_note:
        yield "rules", dirty
    if unprotected := _unprotected(question):
        yield UNPROTECTED, unprotected
    if question.overrides:
        said = f"an experiment: {', '.join(question.overrides)} on the command line; never a base, never published"
        yield "rules", said


def _unprotected(question: RunRequest) -> str:
    """Why no branch that publishes has the commit, as far as git and the rules of the default branch tell."""
    if question.trouble:
        return f"nothing is published, the rules of the default branch are not known: {question.trouble}"
    if question.rules == question.commit and question.trust == "own":
        wanted = ", ".join(question.line.publish.branches)
        return f"nothing is published from here: publish.branches names {wanted}, not the default branch"
    if question.rules is not None:
        named = ", ".join(PROTECTED_TABLES)
        return (
            f"this commit is part of no branch that publishes: {named} are those of commit"
            f" {question.rules[:8]} of the default branch"
        )
    return ""


def _commit(store: ObjectStore, question: RunRequest, base: Record | None) -> CommitInfo:
    repository = question.repository
    patch = repository.patch(repository.tree(question.commit), question.tree) if question.is_dirty else None
    changed = repository.changed(base.commit.tree, question.tree) if base and not base.commit.patch else ()
    return CommitInfo(
        sha=question.commit,
        tree=question.tree,
        branch=question.branch,
        subject=question.subject,
        pull_request=question.pull_request,
        trust=question.trust,
        protected=question.protected,
        rules=question.rules,
        patch=put_blob(store, patch) if patch is not None else None,
        base=Base(commit=base.commit.sha, run=base.run.id) if base else None,
        changed=changed[:MAX_CHANGED],
    )
