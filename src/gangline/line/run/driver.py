"""Driver of a run: its workspace, its lease against other drivers, the context of its stages, its observers."""

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
from gangline.spec.run_flags import search_of
from gangline.storage import site_paths
from gangline.storage.objects.protocol import ObjectStore
from gangline.storage.probe import probe

if TYPE_CHECKING:
    from gangline.line.record.earlier_runs import EarlierRuns
    from gangline.metrics.exporter import DriverExporter


@contextmanager
def attached_observers(ctx: RunContext) -> Iterator[None]:
    """While the block runs, metrics are exported, statuses sent to the forge, points to trackers, as the site says."""
    if ctx.site.metrics.grafana_url is not None:
        from gangline.line.run.run_metrics import link_grafana

        link_grafana(ctx)
    exporter: DriverExporter | None = None
    with ExitStack() as stack:
        if (port := ctx.site.metrics.driver_port) is not None:
            from gangline.line.run.run_metrics import exported_run_metrics

            exporter = stack.enter_context(exported_run_metrics(ctx, port))
        if ctx.site.forge and not search_of(ctx.record):  # its statuses would pass for those of the commit
            from gangline.forge.run_reporter import reporting_to_forge

            stack.enter_context(reporting_to_forge(ctx))
        if ctx.site.track:
            from gangline.line.run.run_trackers import mirrored_to_trackers

            stack.enter_context(mirrored_to_trackers(ctx, exporter))
        yield


DriverKind = Literal["run", "stage", "kfp", "jenkins", "serve"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunWorkspace:
    """What a driver works with: a repository, its site and store, and an observer."""

    repo: Path
    site: Site
    environ: Mapping[str, str]
    store: ObjectStore
    observer: Observer
    open_launcher: OpenLauncher | None = None
    """None: `launchers.open_launcher`; a drill wraps it."""

    def sealer(self) -> Sealer:
        """Raises ConfigError if the site's key cannot be read."""
        return Sealer.of(self.site, self.environ)


def open_run_workspace(
    repo: Path,
    *,
    site: Site,
    environ: Mapping[str, str],
    observer: Observer | None,
    open_launcher: OpenLauncher | None = None,
) -> RunWorkspace:
    """Raises ConfigError or StorageError if the store cannot be opened."""
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
    workspace: RunWorkspace,
    record: Record,
    line: Line,
    *,
    earlier_runs: "EarlierRuns | None" = None,
    kind: DriverKind = "run",
    url: str | None = None,
    find_owner: FindOwner | None = None,
) -> Iterator[RunContext]:
    """Hold the lease of the run while the block drives it; `url` is the driver's own page.

    `earlier_runs` are passed for a run just created; otherwise they are read when a stage needs them.

    Raises:
        HeldError: Another process drives the run.
        IntegrityError: The record's seal is invalid.
    """
    records = RecordStore.of(workspace.store, record, workspace.sealer())
    record = records.read_sealed()
    site = site_of(record, workspace.site)
    launcher = (workspace.open_launcher or open_launcher)(
        workspace.repo,
        site=site,
        environ=workspace.environ,
        store=workspace.store,
        rights=rights_of(record),
        find_owner=find_owner,
        note=workspace.observer.note,
    )
    holder = lease.this_process()
    acquired = lease.acquire_lease(workspace.store, records.prefix, holder=holder, at_least=record.run.driver.token)
    with lease.renewed_lease(workspace.store, records.prefix, acquired, on_problem=workspace.observer.note):
        ctx = RunContext(
            repo=workspace.repo,
            site=site,
            environ=workspace.environ,
            store=workspace.store,
            records=records,
            record=record,
            line=line,
            driver=Driver(kind=kind, holder=holder, token=acquired.token, url=url),
            launcher=launcher,
            observer=workspace.observer,
        )
        ctx.change(unchanged)  # the record has this token now: writes of an older driver are refused
        if earlier_runs is not None:
            ctx.earlier_runs = earlier_runs
        if kind == "run" and not probe(ctx.store).conditional_writes:  # a driver of single stages does not probe again
            text = f"{ctx.store.url} ignores conditional writes: drive runs from one place only"
            ctx.record_event("resolve", "store", text)
        with attached_observers(ctx):
            yield ctx
