"""Fills a model folder around its weights: config, card, bill of materials, provenance, signature, in this order."""

import json
from pathlib import Path

from gangline import __version__
from gangline.line.registry import files
from gangline.line.registry.card import render_card
from gangline.line.registry.keys import SigningKey
from gangline.line.registry.provenance import render_provenance
from gangline.line.registry.sbom import installed, render_sbom
from gangline.line.registry.sign import sign_folder
from gangline.spec.line import Line
from gangline.spec.record import Record

CONFIG_FORMAT = "gangline-model/1"


def write_config(folder: Path, record: Record, line: Line) -> None:
    """`config.json`: what a program needs to build the model that the weights belong to."""
    plain = {
        "format": CONFIG_FORMAT,
        "task": line.project.task,
        "command": list(line.project.command or ()),
        "model": line.model,
        "code": record.inputs.code,
        "weights": [path.name for path in sorted(folder.glob("*.safetensors"))],
        "gangline": __version__,
    }
    _write(folder / files.CONFIG, json.dumps(plain, sort_keys=True, indent=1, ensure_ascii=False) + "\n")


def describe(
    folder: Path, record: Record, line: Line, *, model: str, version: int, checkpoint: str, key: SigningKey
) -> None:
    """Write what depends on the version, over what an earlier number left; the signature comes last."""
    (folder / files.SIGNATURE).unlink(missing_ok=True)
    (folder / files.PROVENANCE).unlink(missing_ok=True)
    weights = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    program = line.project.task or " ".join(line.project.command or ())
    card = render_card(record, model=model, version=version, task=program, weights_bytes=weights, key_id=key.key_id)
    _write(folder / files.CARD, card)
    bill = render_sbom(
        model=model, version=version, run=record.run.id, created=record.run.created, packages=installed()
    )
    _write(folder / files.SBOM, bill)
    subjects = files.list_folder(folder, "")
    statement = render_provenance(record, model=model, version=version, checkpoint=checkpoint, files=subjects)
    _write(folder / files.PROVENANCE, statement)
    sign_folder(folder, key)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
