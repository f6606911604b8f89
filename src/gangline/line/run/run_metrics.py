"""Metrics of a run that this process drives: an exporter fed by an observer, and the link to its Grafana dashboard.

Without `metrics.driver_port` nothing is served. What outlives the driver is in the record and is not exported here.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from gangline.launch.local.scrape_targets import free_ports, publish_targets, remove_dead_targets, remove_targets
from gangline.launch.protocol import GangEvent
from gangline.line.record.context import RunContext
from gangline.line.record.observer import Observer, ObserverRelay
from gangline.metrics.exporter import DriverExporter
from gangline.metrics.record_values import created_at, price_at
from gangline.spec.config.site import Site
from gangline.spec.record import PlanInfo, Record, StageInfo
from gangline.storage import site_paths

COMMIT_BOARD = "gangline-commit"
_BEFORE_SECONDS = 60


def grafana_url(record: Record, site: Site) -> str | None:
    """The dashboard from a minute before the run was created until now; None if the site names no Grafana."""
    if site.metrics.grafana_url is None:
        return None
    query = {
        "var-project": record.run.project,
        "var-run": record.run.id,
        "from": str(int(1000 * (created_at(record) - _BEFORE_SECONDS))),
        "to": "now",
    }
    if site.serve.public_url:
        query["var-service"] = site.serve.public_url.rstrip("/")
    return f"{site.metrics.grafana_url.rstrip('/')}/d/{COMMIT_BOARD}?{urlencode(query)}"


def link_grafana(ctx: RunContext) -> None:
    """Write the link to the dashboard into the record, once."""
    url = grafana_url(ctx.record, ctx.site)
    if url is not None and ctx.record.links.get("grafana") != url:
        ctx.change(lambda record: replace(record, links=record.links | {"grafana": url}))


@contextmanager
def exported_run_metrics(ctx: RunContext, port_base: int) -> Iterator[DriverExporter]:
    """Serve the metrics of the run while the block drives it, and announce the port to a Prometheus of this machine."""
    folder, name = site_paths.targets(ctx.repo, ctx.site), f"{ctx.record.run.id}.driver"
    remove_dead_targets(folder, "*.driver")
    (port,) = free_ports(folder, port_base, 1)
    exporter = DriverExporter(port, price=price_at(ctx.site))
    ctx.observer = ExportingObserver(ctx.observer, exporter, record=lambda: ctx.record, site=ctx.site)
    if exporter.problem is None:
        publish_targets(folder, name, range(port, port + 1))
    else:
        ctx.observer.note(exporter.problem)
    try:
        exporter.show(ctx.record)
        yield exporter
    finally:
        remove_targets(folder, name)
        exporter.close()


class ExportingObserver(ObserverRelay):
    """Exports the current record after each call."""

    def __init__(self, inner: Observer, exporter: DriverExporter, *, record: Callable[[], Record], site: Site) -> None:
        super().__init__(inner)
        self._exporter, self._record, self._site = exporter, record, site

    def run_started(self, record: Record) -> None:
        super().run_started(record)
        self._exporter.show(record)

    def stage_started(self, name: str) -> None:
        super().stage_started(name)
        record = self._record()  # the stage is marked as running a moment later
        running = replace(record.stages.get(name, StageInfo()), state="running")
        self._exporter.show(replace(record, stages={**record.stages, name: running}))

    def progress(self, stage: str, event: GangEvent) -> None:
        super().progress(stage, event)
        if stage == "train":
            self._show_gang(event)

    def stage_ended(self, name: str, info: StageInfo) -> None:
        super().stage_ended(name, info)
        self._exporter.show(self._record())

    def run_ended(self, record: Record) -> None:
        super().run_ended(record)
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
            self._exporter.restarted(run, max(record.gang.restarts if record.gang else 0, event.status.restarts))
        if record.plan is not None and event.data.get("event") == "step" and event.data.get("rank") == 0:
            self._show_step(run, record.plan, event.data)

    def _show_step(self, run: str, plan: PlanInfo, step: Mapping[str, Any]) -> None:
        """Remaining time and utilization of the GPUs, from one step."""
        done, seconds, tokens = step.get("step"), step.get("seconds"), step.get("tokens")
        if not isinstance(done, int) or not isinstance(seconds, float) or seconds <= 0:
            return
        self._exporter.expect(run, max(0, plan.steps - done) * seconds)
        if isinstance(ratio := step.get("mfu"), float):
            self._exporter.used(run, ratio)
        elif isinstance(tokens, int):
            self._exporter.used(run, model_flops_utilization(self._site, plan, tokens_per_second=tokens / seconds))


def model_flops_utilization(site: Site, plan: PlanInfo, *, tokens_per_second: float) -> float | None:
    """Model FLOPs utilization; None on CPU, or if the site does not have the peak FLOP/s of exactly one kind of GPU.

    Source:
        Chowdhery et al., "PaLM" (2022), appendix B: 6 operations per parameter and token, without attention.
    """
    tables = list(site.gpu.values())
    if plan.device != "cuda" or len(tables) != 1 or plan.forecast.parameters is None:
        return None
    flops = tables[0].flops_per_second.get(plan.precision)
    return 6 * plan.forecast.parameters * tokens_per_second / (plan.world_size * flops) if flops else None
