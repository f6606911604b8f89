"""Outputs of a component: the run's numbers, report, verdict and model, rendered from the record alone.

A pipelines server keeps them of a task that succeeded; of one that failed it keeps the log.
"""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from gangline.report.facts import band_of, headline
from gangline.spec.record import Record
from gangline.spec.run_flags import stage


class OutputArtifact(Protocol):
    """An output of a component; kfp gives each kind other methods."""

    path: str


def run_numbers(record: Record) -> dict[str, float]:
    """Numbers of a run to compare with other runs, by stable names."""
    found = {name: metric.value for name, metric in record.metrics.items()} | _judged_on(record)
    if record.ledger is not None:
        found["allocated_seconds"] = record.ledger.allocated_seconds
        if record.ledger.useful_share is not None:
            found["useful_share"] = record.ledger.useful_share
    if record.gang is not None:
        found["restarts"] = float(record.gang.restarts)
    if record.plan is not None:
        found["world_size"] = float(record.plan.world_size)
    if record.proof is not None and record.proof.replay_difference is not None:
        found["replay_difference"] = record.proof.replay_difference
    return {name: value for name, value in sorted(found.items()) if math.isfinite(value)}


def _judged_on(record: Record) -> dict[str, float]:
    """The band of the headline metric."""
    judged = headline(record)
    band = band_of(judged.metric) if judged else None
    return {f"{judged.name}_band_center": band.center, f"{judged.name}_band_half": band.half} if judged and band else {}


def write_outputs(record: Record, base: Record | None, outputs: Mapping[str, Any]) -> None:
    """Fill the outputs that a component declares: `metrics`, `page`, `verdict`, `model`, those that it has."""
    for name, artifact in outputs.items():
        _WRITERS[name](record, base, artifact)


def _metrics(record: Record, _base: Record | None, artifact: Any) -> None:
    for name, value in run_numbers(record).items():
        artifact.log_metric(name, value)


def _page(record: Record, base: Record | None, artifact: OutputArtifact) -> None:
    from gangline.report.run.html import render_html

    Path(artifact.path).write_text(render_html(record, base), encoding="utf-8")


def _verdict(record: Record, _base: Record | None, artifact: OutputArtifact) -> None:
    from gangline.report.run.markdown import render_markdown

    Path(artifact.path).write_text(render_markdown(record), encoding="utf-8")


def _model(record: Record, _base: Record | None, artifact: Any) -> None:
    """The version by name, or why there is none; its files stay in the store, as the server copies what `uri` names."""
    published = stage(record, "publish")
    version: dict[str, Any] = {
        name: published.outputs[name] for name in ("model", "version", "key") if name in published.outputs
    }
    facts = version or {"not_published": published.message}
    artifact.metadata.update(facts)
    Path(artifact.path).write_text(json.dumps(facts), encoding="utf-8")


_WRITERS: Mapping[str, Callable[[Record, Record | None, Any], None]] = {
    "metrics": _metrics,
    "page": _page,
    "verdict": _verdict,
    "model": _model,
}
