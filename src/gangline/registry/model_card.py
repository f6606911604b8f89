"""Model card of a version, rendered from the record alone: purpose, quality, origin, how to reproduce it."""

from importlib.resources import files
from typing import Any

from gangline.report.text import code, markdown
from gangline.spec.measurements import Metric
from gangline.spec.record import Record
from gangline.units import format_bytes, format_count, format_number, format_seconds

_LIMITS = 8


class Code(str):
    """A span of code, which is not escaped again."""

    __slots__ = ()


def render_card(
    record: Record, *, model: str, version: int, task: str, weights_bytes: int, key_id: str, of_program: bool = False
) -> str:
    """The card as markdown; every value is escaped, so it cannot forge a heading or a link."""
    import jinja2

    environment = jinja2.Environment(
        autoescape=False,  # noqa: S701  # markdown, not HTML: every value passes `finalize`
        finalize=lambda value: value if isinstance(value, Code) else markdown(value),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"code": lambda value: Code(code(value)), "seconds": format_seconds, "count": format_count}
    source = files("gangline.registry").joinpath("templates/card.md.j2").read_text("utf-8")
    return environment.from_string(source).render(
        record=record, model=model, version=version, task=task, key_id=key_id, size=format_bytes(weights_bytes),
        metrics=[_row(name, metric) for name, metric in sorted(record.metrics.items())],
        options=_options(record), limits=_limits(record, of_program=of_program),
        form="files as the program wrote them" if of_program else "safetensors",
    )  # fmt: skip


def _row(name: str, metric: Metric) -> dict[str, str]:
    band = metric.band or metric.base_band
    return {
        "name": name,
        "value": format_number(metric.value) + (f" {metric.unit}" if metric.unit else ""),
        "band": f"{format_number(band.center)} ± {format_number(band.half)} ({band.n} seeds)" if band else "not known",
        "better": metric.better or "-",
        "base": "none" if metric.base is None else format_number(metric.base),
    }


def _options(record: Record) -> dict[str, Any]:
    wanted = ("model.", "optimizer.")
    return {key: value for key, value in sorted(record.inputs.values.items()) if key.startswith(wanted)}


def _limits(record: Record, *, of_program: bool) -> list[str]:
    """What the record says is not known, in sentences."""
    said = ["its files were never opened here: load them as you would a stranger's"] if of_program else []
    said += [f"gate {gate.name}: {gate.reason}" for gate in record.gates if gate.verdict == "unknown"]
    said += [f"{name}: no band, judged on one seed" for name, each in record.metrics.items() if not _judged(each)]
    if record.proof is None:
        said.append("not opened under a second plan")
    said.append("measured on held-out data of the same source as the training data; nothing else was tried")
    return said[:_LIMITS]


def _judged(metric: Metric) -> bool:
    return metric.band is not None or metric.base_band is not None
