"""Metadata of a model folder: config, card, bill of materials, provenance and signature, written in this order."""

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from gangline import __version__
from gangline.registry import model_files
from gangline.registry.folder_signature import sign_folder
from gangline.report.inputs import NO_DATA, version_rows
from gangline.report.text import code, markdown
from gangline.report.training_facts import federation_words
from gangline.signing.keys import SigningKey
from gangline.signing.provenance import render_model_provenance
from gangline.signing.sbom import installed_packages, render_model_sbom
from gangline.spec.codec import to_plain
from gangline.spec.config.line import Line
from gangline.spec.measurements import Metric
from gangline.spec.record import Record
from gangline.train.model.golden import GOLDEN
from gangline.train.model.published import PROGRAM_FORMAT
from gangline.units import format_bytes, format_count, format_number, format_seconds

CONFIG_FORMAT = "gangline-model/1"
_MAX_CONFIG_BYTES = 4 << 20
_MAX_LIMITS = 8


def write_config(
    folder: Path, record: Record, line: Line, *, of_program: bool = False, path: Sequence[str] = ()
) -> None:
    """Write `config.json`: what a program needs to build the model for the weights; `path`: its folders of code."""
    weights = folder.rglob("*") if of_program else folder.glob("*.safetensors")
    plain = {
        "format": PROGRAM_FORMAT if of_program else CONFIG_FORMAT,
        "task": line.project.task,
        "command": list(line.project.command or ()),
        "model": line.model,
        "code": record.inputs.code,
        "weights": sorted(path.relative_to(folder).as_posix() for path in weights if path.is_file()),
        "infer": {**to_plain(line.infer), "path": list(path)},
        "gangline": __version__,
    }
    _write(folder / model_files.CONFIG, json.dumps(plain, sort_keys=True, indent=1, ensure_ascii=False) + "\n")


def write_metadata(
    folder: Path, record: Record, line: Line, *, model: str, version: int, checkpoint: str, key: SigningKey,
    of_program: bool = False,
) -> None:  # fmt: skip
    """Write the files that depend on the version number, over those of an earlier number; the signature is last."""
    (folder / model_files.SIGNATURE).unlink(missing_ok=True)
    (folder / model_files.PROVENANCE).unlink(missing_ok=True)
    own = {folder / name for name in (*model_files.COMPLETE, GOLDEN)}
    weights = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and path not in own)
    card = render_card(
        record, model=model, version=version, task=line.project.task or " ".join(line.project.command or ()),
        weights_bytes=weights, key_id=key.key_id, of_program=of_program,
    )  # fmt: skip
    _write(folder / model_files.CARD, card)
    sbom = render_model_sbom(
        model=model, version=version, run=record.run.id, created=record.run.created, packages=installed_packages()
    )
    _write(folder / model_files.SBOM, sbom)
    subjects = model_files.list_folder(folder, "", of_program=of_program)
    statement = render_model_provenance(record, model=model, version=version, checkpoint=checkpoint, files=subjects)
    _write(folder / model_files.PROVENANCE, statement)
    sign_folder(folder, key)


def holds_program_files(folder: Path) -> bool:
    """Whether `config.json` says that the weights are files of a program; False where it cannot be read."""
    try:
        plain = json.loads((folder / model_files.CONFIG).read_bytes()[:_MAX_CONFIG_BYTES])
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(plain, dict) and plain.get("format") == PROGRAM_FORMAT


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


class CodeSpan(str):
    """Markdown code, which `finalize` does not escape again."""

    __slots__ = ()


def render_card(
    record: Record, *, model: str, version: int, task: str, weights_bytes: int, key_id: str, of_program: bool = False
) -> str:
    """The model card as markdown; every value is escaped, so it cannot forge a heading or a link."""
    import jinja2

    environment = jinja2.Environment(
        autoescape=False,  # noqa: S701  # markdown, not HTML: every value passes `finalize`
        finalize=lambda value: value if isinstance(value, CodeSpan) else markdown(value),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "code": lambda value: CodeSpan(code(value)), "seconds": format_seconds, "count": format_count,
        "version_rows": version_rows,
    }  # fmt: skip
    source = files("gangline.registry").joinpath("templates/card.md.j2").read_text("utf-8")
    return environment.from_string(source).render(
        record=record, model=model, version=version, task=task, key_id=key_id, size=format_bytes(weights_bytes),
        metrics=[_metric_row(name, metric) for name, metric in sorted(record.metrics.items())],
        options=_options(record), limits=_known_limits(record, of_program=of_program),
        form="files as the program wrote them" if of_program else "safetensors", no_data=NO_DATA,
        federation=_federation(record),
    )  # fmt: skip


def _federation(record: Record) -> str:
    """Where the data stayed, and what privacy they have; empty without a federation."""
    result = record.federated
    if result is None:
        return ""
    stayed = (
        "Members were simulated on these data" if result.engine == "simulated" else "Data stayed with their members"
    )
    return f"{stayed}: {federation_words(result)}"


def _metric_row(name: str, metric: Metric) -> dict[str, str]:
    band = metric.band or metric.base_band
    return {
        "name": name,
        "value": format_number(metric.value) + (f" {metric.unit}" if metric.unit else ""),
        "band": f"{format_number(band.center)} ± {format_number(band.half)} ({band.n} seeds)" if band else "not known",
        "better": metric.better or "-",
        "base": "none" if metric.base is None else format_number(metric.base),
    }


def _options(record: Record) -> dict[str, Any]:
    prefixes = ("model.", "optimizer.")
    return {key: value for key, value in sorted(record.inputs.values.items()) if key.startswith(prefixes)}


def _known_limits(record: Record, *, of_program: bool) -> list[str]:
    """Sentences on what was not checked or measured."""
    limits = ["gangline did not open its files: load them like files from an unknown source"] if of_program else []
    limits += [f"gate {gate.name}: {gate.reason}" for gate in record.gates if gate.verdict == "unknown"]
    limits += [
        f"{name}: no band, judged on one seed"
        for name, metric in record.metrics.items()
        if metric.band is None and metric.base_band is None
    ]
    if record.proof is None:
        limits.append("not reloaded under a second plan")
    limits.append("measured on held-out data of the same source as the training data; nothing else was tried")
    return limits[:_MAX_LIMITS]
