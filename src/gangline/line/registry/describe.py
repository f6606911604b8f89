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
_MOST_CONFIG_BYTES = 4 << 20
PROGRAM_FORMAT = "gangline-program/1"
"""Of a folder whose weights are files that a program wrote, in formats of its own."""


def write_config(folder: Path, record: Record, line: Line, *, of_program: bool = False) -> None:
    """`config.json`: what a program needs to build the model that the weights belong to."""
    weights = folder.iterdir() if of_program else folder.glob("*.safetensors")
    plain = {
        "format": PROGRAM_FORMAT if of_program else CONFIG_FORMAT,
        "task": line.project.task,
        "command": list(line.project.command or ()),
        "model": line.model,
        "code": record.inputs.code,
        "weights": sorted(path.name for path in weights),
        "gangline": __version__,
    }
    _write(folder / files.CONFIG, json.dumps(plain, sort_keys=True, indent=1, ensure_ascii=False) + "\n")


def describe(
    folder: Path, record: Record, line: Line, *, model: str, version: int, checkpoint: str, key: SigningKey,
    of_program: bool = False,
) -> None:  # fmt: skip
    """Write what depends on the version, over what an earlier number left; the signature comes last."""
    (folder / files.SIGNATURE).unlink(missing_ok=True)
    (folder / files.PROVENANCE).unlink(missing_ok=True)
    weights = sum(path.stat().st_size for path in folder.iterdir() if path.name not in files.COMPLETE)
    program = line.project.task or " ".join(line.project.command or ())
    card = render_card(
        record,
        model=model,
        version=version,
        task=program,
        weights_bytes=weights,
        key_id=key.key_id,
        of_program=of_program,
    )
    _write(folder / files.CARD, card)
    bill = render_sbom(
        model=model, version=version, run=record.run.id, created=record.run.created, packages=installed()
    )
    _write(folder / files.SBOM, bill)
    subjects = files.list_folder(folder, "", of_program=of_program)
    statement = render_provenance(record, model=model, version=version, checkpoint=checkpoint, files=subjects)
    _write(folder / files.PROVENANCE, statement)
    sign_folder(folder, key)


def is_of_program(folder: Path) -> bool:
    """Does `config.json` say that the weights are files of a program? What cannot be read says nothing."""
    try:
        plain = json.loads((folder / files.CONFIG).read_bytes()[:_MOST_CONFIG_BYTES])
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(plain, dict) and plain.get("format") == PROGRAM_FORMAT


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
