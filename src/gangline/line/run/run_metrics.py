"""Metrics of a run that is driven here: an exporter fed by an observer, and the link to the run's Grafana dashboard.

If the site sets no port, nothing is served. What outlives the driver is in the record and is not repeated here.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from gangline.launch.local.scrape_targets import announce, free_ports, withdraw, withdraw_dead
from gangline.launch.protocol import GangEvent
from gangline.line.record.context import RunContext
from gangline.line.record.observer import Observer
from gangline.metrics.exporter import DriverExporter
from gangline.metrics.record_values import made_at, price_at
from gangline.spec.config.site import Site
from gangline.spec.record import PlanInfo, Record, StageInfo
from gangline.storage import site_paths

COMMIT_BOARD = "gangline-commit"
_BEFORE_SECONDS = 60


def grafana_url(record: Record, site: Site) -> str | None:
    """From a minute before the run was made until now; None where the site names no Grafana."""
    if site.metrics.grafana_url is None:
        return None
    asked = {
        "var-project": record.run.project,
        "var-run": record.run.id,
        "from": str(int(1000 * (made_at(record) - _BEFORE_SECONDS))),
        "to": "now",
    }
    if site.serve.public_url:
        asked["var-service"] = site.serve.public_url.rstrip("/")
    return f"{site.metrics.grafana_url.rstrip('/')}/d/{COMMIT_BOARD}?{urlencode(asked)}"


def link_grafana(ctx: RunContext) -> None:
    """Say in the record where its board is; written once."""
    url = grafana_url(ctx.record, ctx.site)
    if url is not None and ctx.record.links.get("grafana") != url:
        ctx.change(lambda record: replace(record, links=record.links | {"grafana": url}))


@contextmanager
def exported_run_metrics(ctx: RunContext) -> Iterator[None]:
    """Serve the series of the context's run while the block drives it, and tell a Prometheus of this machine where."""
    if ctx.site.metrics.driver_port is None:
        yield
        return
    folder, name = site_paths.targets(ctx.repo, ctx.site), f"{ctx.record.run.id}.driver"
    withdraw_dead(folder, "*.driver")
    (port,) = free_ports(folder, ctx.site.metrics.driver_port, 1)
    exporter = DriverExporter(port, price=price_at(ctx.site))
    ctx.observer = ExportingObserver(ctx.observer, exporter, record=lambda: ctx.record, site=ctx.site)
    if exporter.problem is None:
        announce(folder, name, range(port, port + 1))
    else:
        ctx.observer.note(exporter.problem)
    try:
        exporter.show(ctx.record)
        yield
    finally:
        withdraw(folder, name)
        exporter.close()


class ExportingObserver:
    """Implements `Observer`: passes everything on, and shows the record as it stands then."""

    def __init__(self, inner: Observer, exporter: DriverExporter, *, record: Callable[[], Record], site: Site) -> None:
        self._inner, self._exporter, self._record, self._site = inner, exporter, record, site

    def run_started(self, record: Record) -> None:
        self._inner.run_started(record)
        self._exporter.show(record)

    def stage_started(self, name: str) -> None:
        self._inner.stage_started(name)
        record = self._record()  # which says so a moment later
        begun = replace(record.stages.get(name, StageInfo()), state="running")
        self._exporter.show(replace(record, stages={**record.stages, name: begun}))

    def progress(self, stage: str, event: GangEvent) -> None:
        self._inner.progress(stage, event)
        if stage == "train":
            self._show_gang(event)

    def stage_ended(self, name: str, info: StageInfo) -> None:
        self._inner.stage_ended(name, info)
        self._exporter.show(self._record())

    def note(self, text: str) -> None:
        self._inner.note(text)

    def run_ended(self, record: Record) -> None:
        self._inner.run_ended(record)
        self._exporter.show(record)

    def _show_gang(self, event: GangEvent) -> None:
        record = self._record()
        run = record.run.id
        if event.kind == "waiting":
            self._exporter.waiting(run, waits=True)
        if event.kind == "state":
            self._exporter.show(record)
        if event.status is not None:
            self._exporter.waiting(run, waits=event.status.state == "waiting")
            self._exporter.joined(run, event.status.joined)
            self._exporter.restarted(run, event.status.restarts)
        if record.plan is not None and event.data.get("event") == "step" and event.data.get("rank") == 0:
            self._show_step(run, record.plan, event.data)

    def _show_step(self, run: str, plan: PlanInfo, step: Mapping[str, Any]) -> None:
        """Time that is left, and how much of the GPUs' arithmetic is used, by this one step."""
        done, seconds, tokens = step.get("step"), step.get("seconds"), step.get("tokens")
        if not isinstance(done, int) or not isinstance(seconds, float) or seconds <= 0:
            return
        self._exporter.expect(run, max(0, plan.steps - done) * seconds)
        if isinstance(ratio := step.get("mfu"), float):
            self._exporter.used(run, ratio)
        elif isinstance(tokens, int):
            self._exporter.used(run, model_flops_utilization(self._site, plan, tokens_per_second=tokens / seconds))


def model_flops_utilization(site: Site, plan: PlanInfo, *, tokens_per_second: float) -> float | None:
    """Model FLOPs utilization; None on CPU, and where the site does not say what its one kind of GPU delivers.

    Source:
        Chowdhery et al., "PaLM" (2022), appendix B: 6 operations a parameter and token, attention left out.
    """
    tables = list(site.gpu.values())
    if plan.device != "cuda" or len(tables) != 1 or plan.forecast.parameters is None:
        return None
    flops = tables[0].flops_per_second.get(plan.precision)
    return 6 * plan.forecast.parameters * tokens_per_second / (plan.world_size * flops) if flops else None
