"""Rights of a run by the trust of its commit: a fork's run may resolve and build; its code runs only once approved.

Every driver calls this module, so a Jenkinsfile or a service that forgets to ask changes nothing. A fork's run never
passes its results to a run of our own, signs nothing that such a run would read, and its gang gets no credential of
the site.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gangline.errors import CapacityError, IntegrityError, UsageError
from gangline.line.record.store import RecordStore
from gangline.signing.record_seal import Sealer
from gangline.spec.config.data_keys import DataAccess
from gangline.spec.config.secrets import references_of
from gangline.spec.config.site import Site
from gangline.spec.record import Record
from gangline.storage.objects.protocol import ObjectStore
from gangline.storage.s3.run_credentials import SHARED_INPUTS
from gangline.units import now

_ENV = "train.env."


@dataclass(frozen=True, kw_only=True, slots=True)
class Rights:
    """What the gangs of a run may reach."""

    writes: str
    """The one prefix of the store that they write below."""
    checkpoint_owner: str
    """Whose key signs its checkpoints."""
    reads: tuple[str, ...]
    """Prefixes of the store, beside its own."""
    is_fork: bool
    """Then no credential but one of the run is good enough."""
    train_secrets: Mapping[str, str] = field(default_factory=dict)
    """Variable to the reference that the line of the run sets it from; a fork has none."""


def rights_of(record: Record) -> Rights:
    is_fork = record.commit.trust == "fork"
    return Rights(
        writes=record.gang_prefix,
        checkpoint_owner=checkpoint_owner(record),
        reads=("blobs/",) if is_fork else (*SHARED_INPUTS, f"runs/{record.run.project}/"),
        is_fork=is_fork,
        train_secrets={} if is_fork else references_of(_train_env(record)),
    )


def _train_env(record: Record) -> dict[str, str]:
    """The table as it stands in a sealed record: who takes a gang over may not have the line."""
    values = record.inputs.values.items()
    return {key.removeprefix(_ENV): str(value) for key, value in values if key.startswith(_ENV)}


def checkpoint_owner(record: Record) -> str:
    """The project, or for a fork the run alone: with its key nobody signs a checkpoint of the project."""
    return record.run.project if record.commit.trust == "own" else f"{record.run.project}/{record.run.id}"


def data_access(record: Record, site: Site) -> DataAccess:
    """What the driver reads as data for the run: for a fork what the site gives to all, and no private package."""
    if record.commit.trust == "fork":
        return DataAccess(prefixes=site.store.data, packages=("gangline",))
    return DataAccess(prefixes=site.store.data, project=record.run.project)


def awaits_approval(record: Record) -> bool:
    return record.commit.trust == "fork" and record.run.approved is None


def require_approval(record: Record, what: str) -> None:
    """Raises CapacityError (20) for a fork's run that nobody approved; it stays open and goes on once somebody has."""
    if awaits_approval(record):
        raise CapacityError(
            f"{record.run.id} is of a fork: {what} would run its code, which a maintainer reads first;"
            f" then: gangline approve {record.run.id}"
        )


def approve(store: ObjectStore, record: Record, *, who: str, sealer: Sealer) -> Record:
    """Let a fork's run execute its code; of this commit alone, the next push asks again.

    Args:
        store: Where its record is.
        record: As it was read.
        who: Stands in the record, with the time.
        sealer: Of who approves; drivers have to trust its key.

    Raises:
        UsageError: There is nothing to approve.
        IntegrityError: The record is not as a trusted driver left it.
    """

    def change(standing: Record) -> Record:
        if standing.commit.trust == "own":
            raise UsageError(f"{standing.run.id} is of this repository's own commit: nothing to approve")
        if standing.run.state == "ended":
            raise UsageError(f"{standing.run.id} has ended ({standing.run.verdict}): gangline run --again asks anew")
        if standing.run.approved:
            return standing
        return replace(standing, run=replace(standing.run, approved=f"{who}, {now()}"))

    return RecordStore.of(store, record, sealer).change(change)


def require_scoped_credentials(lent: str | None, rights: Rights) -> None:
    """Raises IntegrityError where a fork's gang would get the site's own credential."""
    if lent is None and rights.is_fork:
        raise IntegrityError(
            "a fork's gang gets no credential of the site, and this store lends none for one run; a server with"
            " AssumeRole (MinIO) and store.scoped = true do"
        )
