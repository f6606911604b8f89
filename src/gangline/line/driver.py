"""Becoming the driver of a run: where it works, the lease that keeps others away, the context its stages get."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gangline.line import lease, places, runs
from gangline.line.context import Context, unchanged
from gangline.line.launchers import FindOwner, OpenLauncher, open_launcher
from gangline.line.listeners import listening
from gangline.line.observer import Observer, Silent
from gangline.line.record_store import RecordStore
from gangline.line.seal import Sealer
from gangline.line.targets import site_of
from gangline.line.trust import rights_of
from gangline.spec.line import Line
from gangline.spec.record import Driver, Record
from gangline.spec.site import Site
from gangline.storage.probe import probe
from gangline.storage.protocol import ObjectStore

if TYPE_CHECKING:
    from gangline.line.base import Past

DriverKind = Literal["run", "stage", "kfp", "jenkins", "serve"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Desk:
    """A repository, its site and store, and who watches."""

    repo: Path
    site: Site
    environ: Mapping[str, str]
    store: ObjectStore
    observer: Observer
    open_launcher: OpenLauncher | None = None
    """None: that of the site's target; a drill puts its own before it."""

    def sealer(self) -> Sealer:
        """Raises ConfigError where the site's key cannot be read."""
        return Sealer.of(self.site, self.environ)


def open_desk(
    repo: Path,
    *,
    site: Site,
    environ: Mapping[str, str],
    observer: Observer | None,
    open_launcher: OpenLauncher | None = None,
) -> Desk:
    """Raises ConfigError or StorageError where the store cannot be opened."""
    places.home(repo)
    return Desk(
        repo=repo,
        site=site,
        environ=environ,
        store=runs.open_site_store(repo, site, environ),
        observer=observer or Silent(),
        open_launcher=open_launcher,
    )


@contextmanager
def driving(
    desk: Desk,
    record: Record,
    line: Line,
    *,
    past: "Past | None" = None,
    kind: DriverKind = "run",
    url: str | None = None,
    find_owner: FindOwner | None = None,
) -> Iterator[Context]:
    """Hold the lease of the run while the block drives it; `url` is the driver's own page.

    `past` is known where the run was just born; else it is looked up when a stage asks.

    Raises:
        HeldError: Somebody else drives.
        IntegrityError: The record is not as a trusted driver left it.
    """
    records = RecordStore.of(desk.store, record, desk.sealer())
    record = records.read_sealed()
    site = site_of(record, desk.site)
    opening = desk.open_launcher or open_launcher
    launcher = opening(
        desk.repo,
        site=site,
        environ=desk.environ,
        store=desk.store,
        rights=rights_of(record),
        find_owner=find_owner,
        note=desk.observer.note,
    )
    holder = lease.this_process()
    mine = lease.take(desk.store, records.prefix, holder=holder, at_least=record.run.driver.token)
    with lease.kept(desk.store, records.prefix, mine, on_trouble=desk.observer.note):
        ctx = Context(
            repo=desk.repo,
            site=site,
            environ=desk.environ,
            store=desk.store,
            records=records,
            record=record,
            line=line,
            driver=Driver(kind=kind, holder=holder, token=mine.token, url=url),
            launcher=launcher,
            observer=desk.observer,
        )
        ctx.change(unchanged)  # from here on the record has this token: an older driver's writes are refused
        if past is not None:
            ctx.past = past
        if kind == "run":  # every run begins so; a task of it need not try the store again
            _warn(ctx)
        with listening(ctx):
            yield ctx


def _warn(ctx: Context) -> None:
    """Say once where a store cannot keep two drivers apart."""
    if not probe(ctx.store).conditional_writes:
        ctx.remember("resolve", "store", f"{ctx.store.url} ignores conditional writes: drive runs from one place only")
