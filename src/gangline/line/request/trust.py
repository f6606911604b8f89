"""Rights of a run by the trust of its commit: a fork's run may resolve and build; its code runs only once approved.

The stages check this themselves, whatever drives them. Results of a fork's run are never reused by a run of the
repository's own commits, it signs nothing that such a run would read, and its gang gets no credential of the site.

A home of model code is kept from run to run on this machine, with what its runs download and compile. Runs that may
publish share one with each other alone, by branch: what an experiment, a dirty tree or the commit of another branch
leaves in its home changes nothing that is published.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

from gangline.errors import CapacityError, IntegrityError, UsageError
from gangline.line.record.store import RecordStore
from gangline.signing.record_seal import Sealer
from gangline.spec.config.data_keys import DataAccess
from gangline.spec.config.secrets import references_of
from gangline.spec.config.site import Site
from gangline.spec.record import Record, Trust
from gangline.spec.run_flags import may_publish
from gangline.storage.objects.protocol import ObjectStore
from gangline.storage.s3.run_credentials import SHARED_INPUTS
from gangline.units import now

FOLDER = "home"
"""Folder of these homes in `.gangline`."""
_MOST_CHARACTERS = 40


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptHome:
    """The home of runs of a branch, or of no branch, that may all publish or may all not."""

    branch: str | None
    may_publish: bool

    @property
    def path(self) -> Path:
        """Path below `.gangline/home`; branches whose names differ have different ones."""
        name = self.branch or ""
        slug = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-")[:_MOST_CHARACTERS] or "no-branch"
        kind = "published" if self.may_publish else "other"
        return Path(f"{slug}-{sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}", kind)


def kept_home_of(record: Record) -> KeptHome | None:
    """Home of the run's code; None for a fork, each gang of which has one of its own."""
    if record.commit.trust == "fork":
        return None
    return KeptHome(branch=record.commit.branch, may_publish=may_publish(record))


_ENV = "train.env."


@dataclass(frozen=True, kw_only=True, slots=True)
class Rights:
    """What the gangs of a run may access."""

    writes: str
    """The only prefix of the store that they may write to."""
    checkpoint_owner: str
    """Owner of the key that signs its checkpoints."""
    reads: tuple[str, ...]
    """Further prefixes of the store that they may read."""
    is_fork: bool
    """A fork's gangs get only a credential scoped to the run."""
    train_secrets: Mapping[str, str] = field(default_factory=dict)
    """Variable -> secret reference of the run's line; empty for a fork."""
    home: KeptHome | None = None
    """Home of their code on this machine; None: each has one of its own."""


def rights_of(record: Record) -> Rights:
    """Rights of a run's gangs, by the trust in its commit."""
    is_fork = record.commit.trust == "fork"
    return Rights(
        writes=record.gang_prefix,
        checkpoint_owner=checkpoint_owner(record),
        reads=("blobs/",) if is_fork else (*SHARED_INPUTS, f"runs/{record.run.project}/"),
        is_fork=is_fork,
        train_secrets={} if is_fork else references_of(_train_env(record)),
        home=kept_home_of(record),
    )


def _train_env(record: Record) -> dict[str, str]:
    """`[train.env]` from the sealed record, because a driver that takes a gang over may not have the line."""
    values = record.inputs.values.items()
    return {key.removeprefix(_ENV): str(value) for key, value in values if key.startswith(_ENV)}


def checkpoint_owner(record: Record) -> str:
    """The project, or for a fork the run: its key must not sign checkpoints of the project."""
    return record.run.project if record.commit.trust == "own" else f"{record.run.project}/{record.run.id}"


def data_access(record: Record, site: Site) -> DataAccess:
    """Data that the driver may read for the run."""
    return data_access_of(record.commit.trust, record.run.project, site)


def data_access_of(trust: Trust, project: str, site: Site) -> DataAccess:
    """Data that commits of a project may name; for a fork the public part of the site, and no private package."""
    if trust == "fork":
        return DataAccess(prefixes=site.store.data, packages=("gangline",))
    return DataAccess(prefixes=site.store.data, project=project)


def awaits_approval(record: Record) -> bool:
    """Whether it is a fork's run that no maintainer has approved."""
    return record.commit.trust == "fork" and record.run.approved is None


def require_approval(record: Record, what: str) -> None:
    """Raise CapacityError (20) for a fork's run that is not approved; it stays open and resumes after approval."""
    if awaits_approval(record):
        raise CapacityError(
            f"{record.run.id} is of a fork: {what} would run its code, which a maintainer reads first;"
            f" then: gangline approve {record.run.id}"
        )


def approve(store: ObjectStore, record: Record, *, who: str, sealer: Sealer) -> Record:
    """Allow a fork's run to execute its code; the approval is for this commit, the next push needs another.

    Args:
        store: Store of the record.
        record: The run.
        who: Recorded with the time.
        sealer: Of the approver; drivers must trust its key.

    Raises:
        UsageError: There is nothing to approve.
        IntegrityError: The record's seal is invalid.
    """

    def change(current: Record) -> Record:
        if current.commit.trust == "own":
            raise UsageError(f"{current.run.id} is of this repository's own commit: nothing to approve")
        if current.run.state == "ended":
            raise UsageError(
                f"{current.run.id} has ended ({current.run.verdict}): gangline run --again makes another attempt"
            )
        if current.run.approved:
            return current
        return replace(current, run=replace(current.run, approved=f"{who}, {now()}"))

    return RecordStore.of(store, record, sealer).change(change)


def require_scoped_credentials(scoped: str | None, rights: Rights) -> None:
    """Raise IntegrityError if a fork's gang would get the site's own credential."""
    if scoped is None and rights.is_fork:
        raise IntegrityError(
            "a fork's gang gets no credential of the site, and this store issues none for a single run; a server with"
            " AssumeRole (MinIO) and store.scoped = true does"
        )
