"""Driver of a run: its workspace, the lease that keeps other drivers away, the context of its stages, its observers."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gangline.line.gangs.launchers import FindOwner, OpenLauncher, open_launcher
from gangline.line.record.context import RunContext, unchanged
from gangline.line.record.observer import Observer, SilentObserver
from gangline.line.record.store import RecordStore
from gangline.line.request.targets import site_of
from gangline.line.request.trust import rights_of
from gangline.line.run import lease
from gangline.signing.record_seal import Sealer
from gangline.spec.config.line import Line
from gangline.spec.config.site import Site
from gangline.spec.record import Driver, Record
from gangline.storage import site_paths
from gangline.storage.objects.protocol import ObjectStore
from gangline.storage.probe import probe

if TYPE_CHECKING:
    from gangline.line.record.earlier_runs import EarlierRuns


@contextmanager
def attached_observers(ctx: RunContext) -> Iterator[None]:
    """While the block drives, series are served and the forge is told, as far as the site asks for it."""
    if ctx.site.metrics.grafana_url is not None:
        from gangline.line.run.run_metrics import link_grafana

        link_grafana(ctx)
    with ExitStack() as held:
        if ctx.site.metrics.driver_port is not None:
            from gangline.line.run.run_metrics import exported_run_metrics

            held.enter_context(exported_run_metrics(ctx))
        if ctx.site.forge:
            from gangline.forge.run_reporter import reporting_to_forge

            held.enter_context(reporting_to_forge(ctx))
        yield


DriverKind = Literal["run", "stage", "kfp", "jenkins", "serve"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunWorkspace:
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


def open_run_workspace(
    repo: Path,
    *,
    site: Site,
    environ: Mapping[str, str],
    observer: Observer | None,
    open_launcher: OpenLauncher | None = None,
) -> RunWorkspace:
    """Raises ConfigError or StorageError where the store cannot be opened."""
    site_paths.home(repo)
    return RunWorkspace(
        repo=repo,
        site=site,
        environ=environ,
        store=site_paths.open_site_store(repo, site, environ),
        observer=observer or SilentObserver(),
        open_launcher=open_launcher,
    )


@contextmanager
def driving(
    desk: RunWorkspace,
    record: Record,
    line: Line,
    *,
    earlier_runs: "EarlierRuns | None" = None,
    kind: DriverKind = "run",
    url: str | None = None,
    find_owner: FindOwner | None = None,
) -> Iterator[RunContext]:
    """Hold the lease of the run while the block drives it; `url` is the driver's own page.

    `earlier_runs` is known where the run was just born; else it is looked up when a stage asks.

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
    mine = lease.acquire_lease(desk.store, records.prefix, holder=holder, at_least=record.run.driver.token)
    with lease.renewed_lease(desk.store, records.prefix, mine, on_trouble=desk.observer.note):
        ctx = RunContext(
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
        if earlier_runs is not None:
            ctx.earlier_runs = earlier_runs
        if kind == "run":  # every run begins so; a task of it need not try the store again
            _warn(ctx)
        with attached_observers(ctx):
            yield ctx


def _warn(ctx: RunContext) -> None:
    """Say once where a store cannot keep two drivers apart."""
    if not probe(ctx.store).conditional_writes:
        ctx.record_event(
            "resolve", "store", f"{ctx.store.url} ignores conditional writes: drive runs from one place only"
        )
