"""Facts of a record that every surface shows in the same words: verdicts, shares, ratios. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from gangline.spec.measurements import PHASES, Band, Ledger, Metric, RankRow
from gangline.spec.mesh import Mesh
from gangline.spec.record import (
    RETRY,
    SLOW,
    SPLIT,
    STAGES,
    STOPPED,
    UNDECLARED,
    UNREPORTED,
    Gate,
    Record,
    StageInfo,
)
from gangline.spec.replica_shares import shares_words
from gangline.spec.run_flags import flags_of, not_finite, stage
from gangline.units import format_bytes, format_number

Side = Literal["better", "same", "worse", "unknown"]

ALL_GOOD = "every stage is done and no gate said no"
"""Reason of a run that passed, where every gate judged."""
_FIRST_OUTPUTS = 4
SHOWN_METRICS = 12
LONGEST = 500
"""Characters of a reason; lists and databases take no longer ones."""
MARKS = {"yes": "✓", "no": "✗", "unknown": "?"}
SIDE_MARKS: dict[Side, str] = {"better": "✓", "same": "✓", "worse": "✗", "unknown": "?"}
STAGE_MARKS = {
    "waiting": "·", "running": "▸", "done": "✓", "taken": "↺", "skipped": "–", "failed": "✗", "cancelled": "■",
}  # fmt: skip


def curve_end(record: Record) -> str:
    """The last value of the curve, which is not that of the training where later ones were not finite."""
    last = record.curve.points[-1]
    broken = record.curve.metric in not_finite(record)
    return format_number(last.value) + (f" at step {last.step}, not finite at the end" if broken else "")


@dataclass(frozen=True, slots=True)
class JudgedMetric:
    """A metric with its base."""

    name: str
    metric: Metric
    change: float | None
    """Relative to the base; 0.016 is 1.6 % above it."""
    band: float | None
    """Half of the base's band, relative to its centre."""
    side: Side


def judge(name: str, metric: Metric) -> JudgedMetric:
    """Find the side of the base's band on which the value lies; `unknown` without a band or a direction."""
    reference = metric.base_band.center if metric.base_band else metric.base
    change = metric.value / reference - 1 if reference else None
    band = (
        metric.base_band.half / abs(metric.base_band.center) if metric.base_band and metric.base_band.center else None
    )
    return JudgedMetric(name, metric, change, band, side_of(metric.value, metric.base_band, metric.better))


def program_decides(record: Record) -> str:
    """`2 processes; the program decides how`, of a command that no strategy was asked of; empty: a plan was chosen."""
    values = record.inputs.values
    if record.plan is None or not values.get("project.command") or values.get("train.strategy") != "auto":
        return ""
    count = record.plan.world_size
    return f"{'1 process' if count == 1 else f'{count} processes'}; the program decides how"


def time_of(resource: str) -> str:
    """What a ledger counts: each rank's time while it held its cores or its GPU, which is not processor time."""
    return "GPU time" if resource == "gpu" else "rank time"


def mesh_words(mesh: Mesh, shares: Sequence[int] = ()) -> str:
    """Degrees of a plan that cuts along several axes, slowest first, and unlike shares of its replicas; nothing where
    its name says all."""
    cut = [f"{axis} {degree}" for axis, degree in mesh.axes.items() if degree > 1]
    degrees = " × ".join(cut) + (f", experts in {mesh.ep}" if mesh.ep > 1 else "")
    unlike = f"samples by replica {shares_words(shares)}" if shares else ""
    return ", ".join(filter(None, [degrees if len(cut) > 1 or mesh.ep > 1 else "", unlike]))


def band_of(metric: Metric) -> Band | None:
    """The band that a metric is judged on: its base's, or the one that its own run learned."""
    return metric.base_band or metric.band


def side_of(value: float, band: Band | None, better: Literal["lower", "higher"] | None) -> Side:
    """Side of `band` on which `value` lies; unknown without a band or a direction."""
    if band is None or better is None:
        return "unknown"
    if band.low <= value <= band.high:
        return "same"
    return "better" if (value < band.low) == (better == "lower") else "worse"


def headline(record: Record) -> JudgedMetric | None:
    """The metric that the first quality gate judges; else the first of `metric_order`."""
    name = next(iter(metric_order(record)), None)
    return judge(name, record.metrics[name]) if name is not None else None


def metric_order(record: Record) -> list[str]:
    """Names of metrics: what gates judge, then the others by name, those in a table of a metrics file (`a.b`) last."""
    gated = [name for name in gated_metrics(record) if name in record.metrics]
    return gated + sorted(record.metrics.keys() - set(gated), key=lambda name: ("." in name, name))


def gated_metrics(record: Record) -> list[str]:
    """Metrics that quality gates of the run judge, in their order."""
    found = (gate.name.removeprefix("quality:") for gate in record.gates if gate.name.startswith("quality:"))
    return list(dict.fromkeys(found))


def shown_metrics(record: Record) -> tuple[list[JudgedMetric], list[JudgedMetric]]:
    """The first metrics, with all that gates judge, and the others, which pages fold: a file may hold many settings."""
    gated = gated_metrics(record)
    rows = [judge(name, record.metrics[name]) for name in metric_order(record)]
    first = [row for row in rows if row.name in gated or "." not in row.name] or rows
    first = first[: max(SHOWN_METRICS, len(gated))]
    return first, [row for row in rows if row not in first]


def plan_words(record: Record) -> str | None:
    """`ddp-2`; `ddp-2 to 60` of a training that was to end before its schedule."""
    if record.plan is None:
        return None
    stop = record.inputs.values.get("train.stop_at")
    return record.plan.name if stop is None else f"{record.plan.name} to {stop}"


def verdict_word(record: Record) -> str:
    """passed, refused, failed, cancelled, superseded; `open` while it runs."""
    return record.run.verdict or "open"


def verdict_text(record: Record) -> str:
    """Text of the verdict: `passed, 1 gate could not judge`."""
    word, unjudged = verdict_word(record), unjudged_text(record.gates)
    return f"{word}, {unjudged}" if word == "passed" and unjudged else word


def verdict_head(record: Record) -> str:
    """The verdict as the page of a terminal begins: `PASSED    `, or `PASSED, 1 gate could not judge · `."""
    word, said = verdict_word(record), verdict_text(record)
    return f"{word.upper():<10}" if said == word else f"{word.upper()}{said.removeprefix(word)} · "


def unjudged_text(gates: Iterable[Gate]) -> str:
    """`2 gates could not judge`; empty where all did."""
    count = sum(gate.verdict == "unknown" for gate in gates)
    return f"{count} gate{'s' if count > 1 else ''} could not judge" if count else ""


def passed_reason(gates: Iterable[Gate]) -> str:
    """Why a run passed, and what passing does not say."""
    unknown = "; ".join(f"{gate.name}, {gate.reason}" for gate in gates if gate.verdict == "unknown")
    return f"no gate said no; not judged: {unknown}"[:LONGEST] if unknown else ALL_GOOD


def verdict_reason(record: Record) -> str:
    """One sentence: the run's own, what the last stop of an open one saved, or that of the first gate that said no."""
    if record.run.verdict == "passed":  # of records that were written before their reason named unknown gates
        return passed_reason(record.gates)
    if reason := record.run.reason or stop_text(record):
        return reason
    refusing = [gate.reason for gate in record.gates if gate.verdict == "no"]
    return refusing[0] if refusing else ""


def stop_text(record: Record) -> str:
    """What the gang of an open run had saved when it was stopped; empty: it was not, or another one has followed."""
    last = next((event for event in reversed(record.events) if event.kind in (STOPPED, RETRY)), None)
    return last.text if last is not None and last.kind == STOPPED and record.run.state == "open" else ""


def mark_words(record: Record) -> str:
    """How the run differs from its commit, and what follows from that; empty: it does not."""
    keys = ", ".join(override.partition("=")[0] for override in record.inputs.overrides)
    words = {"experiment": f"experiment with {keys}", "dirty": "uncommitted changes", "drilled": "drilled"}
    said = " · ".join(words[mark] for mark in flags_of(record))
    return f"{said} · never a base, never published" if said else ""


def gate_order(gates: tuple[Gate, ...]) -> list[Gate]:
    """Gates, those that refused first, then those that could not judge."""
    return sorted(gates, key=lambda gate: ("no", "unknown", "yes").index(gate.verdict))


@dataclass(frozen=True, slots=True)
class PinnedItem:
    """A thing that the result depends on, as the reproducible gate judged it."""

    name: str
    pinned: str
    by: str
    uncompared: str
    """What it depends on and no digest or version in the record describes."""


def pinned_rows(record: Record) -> list[PinnedItem]:
    """Item by item; empty in older records, whose gate has no items."""
    items = next((gate.evidence.get("items") for gate in record.gates if gate.name == "reproducible"), None)
    rows = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    return [
        PinnedItem(str(row.get("name")), pinned, str(row.get("by")), _uncompared(row))
        for row in rows if (pinned := str(row.get("pinned"))) in MARKS
    ]  # fmt: skip


def _uncompared(item: dict[str, Any]) -> str:
    """What no digest describes; older records have the whole reason why the item is unknown."""
    return str(item.get("uncompared", item.get("by") if item.get("pinned") == "unknown" else ""))


def undeclared(record: Record) -> list[str]:
    """What was read that the line does not declare, a sentence each."""
    return [event.text for event in record.events if event.kind == UNDECLARED]


def stages_in_order(record: Record) -> list[tuple[str, StageInfo]]:
    """All ten, waiting ones too."""
    return [(name, record.stages.get(name, StageInfo())) for name in STAGES]


def total_seconds(record: Record) -> float:
    """Seconds of the executed stages before the report, which cannot contain its own duration."""
    stages = ((name, info) for name, info in record.stages.items() if name != "report" and info.state != "taken")
    return sum(info.seconds or 0.0 for _, info in stages)


def ledger_rows(ledger: Ledger) -> list[tuple[str, float, float]]:
    """(cause, seconds, share of the allocation), longest first, nothing that is zero."""
    rows = sorted(ledger.seconds.items(), key=lambda row: (-row[1], row[0]))
    whole = ledger.allocated_seconds or 1.0
    return [(cause, seconds, seconds / whole) for cause, seconds in rows if seconds > 0]


def slowest_rank(record: Record) -> tuple[int, str, float] | None:
    """(rank, node, share above the median step), where at least two ranks were timed."""
    timed = [(row.step_seconds, row.rank, row.node) for row in record.ranks if row.step_seconds]
    if len(timed) < 2:
        return None
    seconds, rank, node = max(timed)
    return rank, node, seconds / median(t[0] for t in timed) - 1


def unreported(record: Record) -> list[str]:
    """Sentences on metrics that the program did not report."""
    return [event.text for event in record.events if event.kind == UNREPORTED]


def outputs_text(record: Record) -> str:
    """`3 files, 12 MB: out/model.pt 12 MB, out/notes.txt 6 B and 1 more`; empty: the line declares none."""
    info = record.outputs
    if info is None:
        return ""
    if info.refused or not info.num_files:
        return info.refused or "none was written"
    first = [f"{file.path} {format_bytes(file.size_bytes)}" for file in info.files[:_FIRST_OUTPUTS]]
    more = f" and {info.num_files - len(first)} more" if info.num_files > len(first) else ""
    lost = f" · {info.num_left_out} left out" if info.num_left_out else ""
    files = f"{info.num_files} file{'s' if info.num_files > 1 else ''}"
    return f"{files}, {format_bytes(info.size_bytes)}: {', '.join(first)}{more}{lost}"


def split_tiles(record: Record) -> str:
    """Which tiles of the plan are in several groups of servers; empty: none, as far as groups are known."""
    order = record.gang.order if record.gang else None
    said = [event.text for event in record.events if event.kind == SPLIT]
    return said[-1] if order and order.num_split and said else ""


def held_up(record: Record) -> list[str]:
    """Sentences on what slowed the gang down."""
    return [event.text for event in record.events if event.kind == SLOW]


def first_outside(record: Record) -> int | None:
    """Step of the first of three curve points running that lie outside the base band."""
    run = 0
    points = [p for p in record.curve.points if p.low is not None and p.high is not None]
    for at, point in enumerate(points):
        inside = (point.low or 0.0) <= point.value <= (point.high or 0.0)
        run = 0 if inside else run + 1
        if run == 3:
            return points[at - 2].step
    return None


def trained_by(record: Record) -> str:
    """Run whose training this one took, and whose times it shows; empty: it trained itself."""
    return stage(record, "train").taken_from or ""


def forecast_off(record: Record) -> float | None:
    """Measured step time over the forecast, less one."""
    plan = record.plan
    if plan is None or not plan.forecast.step_seconds or not plan.measured.step_seconds:
        return None
    return plan.measured.step_seconds / plan.forecast.step_seconds - 1


def reproduce_commands(record: Record) -> list[str]:
    """Command that repeats the run on a machine with the repository."""
    is_local = (record.commit.repository or "").startswith("/")
    fetch = "" if is_local else "git fetch origin && "
    commands = [f"{fetch}git checkout --detach {record.commit.sha}"]
    if record.commit.patch:
        commands.append(f"# uncommitted changes: apply the patch at {record.commit.patch} of the store first")
    commands.append("gangline run --again")
    commands.append(f"gangline diff {record.run.id} HEAD")
    return commands


def phases_of(ranks: tuple[RankRow, ...]) -> tuple[str, ...]:
    """Columns of the ranks' time; bubbles are a pipeline's alone."""
    return PHASES if any(row.phases.get("bubble") for row in ranks) else tuple(p for p in PHASES if p != "bubble")
