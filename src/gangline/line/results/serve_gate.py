"""Verdict on a candidate that was started as it would be served, and the metrics that were measured on it."""

from collections.abc import Iterator, Mapping
from typing import Any

from gangline.infer.turns import Ratio, percentile_99, spread_of_99, time_ratio
from gangline.spec.config.infer_table import ServeGate
from gangline.spec.measurements import Answer, Band, Metric
from gangline.spec.record import Gate
from gangline.units import format_bytes, format_number

SERVE = "serve"
P99, PER_SECOND, MEMORY = "serve.p99_ms", "serve.per_second", "serve.memory_bytes"
SERVE_METRICS = frozenset({P99, PER_SECOND, MEMORY})
"""Measured when a version is published, and by no evaluation."""


def serve_metrics(answer: Mapping[str, Any], base_run: str | None) -> dict[str, Metric]:
    """Metrics of an answer of `infer.smoke`; none where the candidate did not answer as it must."""
    if "candidate" not in answer:
        return {}
    own, base = answer["candidate"], answer.get("base")
    found = {
        P99: Metric(value=1000 * percentile_99(_all(own["turns"])), unit="ms", better="lower"),
        PER_SECOND: Metric(value=answer["per_second"], unit="1/s", better="higher"),
        MEMORY: Metric(value=own["memory_bytes"], unit="bytes", better="lower"),
    }
    if base is None or base_run is None:
        return found
    center, half = 1000 * percentile_99(_all(base["turns"])), 1000 * spread_of_99(base["turns"])
    return found | {
        P99: _beside(found[P99], center, Band(center=center, half=half, n=1, origin=base_run)),
        MEMORY: _beside(found[MEMORY], base["memory_bytes"], None),
    }


def judge_serve(table: ServeGate | None, answer: Mapping[str, Any], metrics: Mapping[str, Metric]) -> Gate:
    """The gate `serve`; a table of None still refuses a candidate that does not answer as it must."""
    if problems := answer.get("problems"):
        return Gate(name=SERVE, verdict="no", reason="; ".join(map(str, problems)))
    own = answer["candidate"]
    if own["failed"]:
        asked = len(_all(own["turns"]))
        return Gate(
            name=SERVE, verdict="no", reason=f"{own['failed']} of {asked} requests were answered otherwise, or not"
        )
    found = list(_verdicts(table or ServeGate(), answer, metrics))
    verdicts = {verdict for verdict, _ in found}
    verdict: Answer = "no" if "no" in verdicts else "unknown" if "unknown" in verdicts else "yes"
    said = "; ".join(reason for each, reason in found if each == verdict and verdict != "yes")
    evidence = {name: metric.value for name, metric in metrics.items()}
    if (ratio := _ratio(answer)) is not None:
        evidence |= {"ratio": ratio.value, "ratio_error": ratio.error}
    return Gate(
        name=SERVE, verdict=verdict, reason=(f"{said}: " if said else "") + serve_text(metrics), evidence=evidence
    )


def serve_text(metrics: Mapping[str, Metric]) -> str:
    """The numbers in one line."""
    p99 = metrics[P99]
    base = ""
    if p99.base_band is not None:
        spread = f"{format_number(p99.base_band.center)} ± {format_number(p99.base_band.half)}"
        base = f" (base {spread}, same machine, in turns)"
    return (
        f"p99 {format_number(p99.value)} ms{base} · {format_number(metrics[PER_SECOND].value)} requests/s"
        f" · {format_bytes(int(metrics[MEMORY].value))}"
    )


def _verdicts(
    table: ServeGate, answer: Mapping[str, Any], metrics: Mapping[str, Metric]
) -> Iterator[tuple[Answer, str]]:
    p99, memory = metrics[P99].value, metrics[MEMORY]
    if table.p99_ms is not None and p99 > table.p99_ms:
        text = f"p99 is {format_number(p99)} ms, wanted at most {format_number(table.p99_ms)}"
        load, cores = float(answer["load"]), int(answer["cores"])
        if load > cores:
            yield "unknown", f"{text}, measured at a load of {load:.1f} on {cores} cores, so it says nothing"
        else:
            yield "no", text
    if table.memory_bytes is not None and memory.value > table.memory_bytes:
        most = format_bytes(int(table.memory_bytes))
        yield "no", f"its memory is {format_bytes(int(memory.value))}, wanted at most {most}"
    if table.worse_percent is not None:
        yield _against_base(table.worse_percent, answer, memory)


def _against_base(percent: float, answer: Mapping[str, Any], memory: Metric) -> tuple[Answer, str]:
    ratio, most = _ratio(answer), 1 + percent / 100
    if ratio is None or memory.base is None:
        return "unknown", f"there is nothing to compare it with: {answer.get('no_base') or 'no base yet'}"
    if memory.value > most * memory.base:
        text = f"its memory is {100 * (memory.value / memory.base - 1):.0f} % more than the base's"
        return "no", f"{text}, wanted at most {percent:g} %"
    if ratio.value <= most:
        return "yes", ""
    text = f"its answers take {100 * (ratio.value - 1):.0f} % longer than the base's, wanted at most {percent:g} %"
    if ratio.is_surely_above_one:
        return "no", text
    return "unknown", f"{text}, but turns differ too much on this machine to be sure"


def _ratio(answer: Mapping[str, Any]) -> Ratio | None:
    base = answer.get("base")
    return None if base is None else time_ratio(answer["candidate"]["turns"], base["turns"])


def _beside(metric: Metric, base: float, band: Band | None) -> Metric:
    return Metric(value=metric.value, unit=metric.unit, better=metric.better, base=base, base_band=band)


def _all(turns: list[list[float]]) -> list[float]:
    return [each for turn in turns for each in turn]
