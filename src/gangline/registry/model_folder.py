"""Metadata of a model folder: config, card, bill of materials, provenance and signature, written in this order."""

import json
from pathlib import Path

from gangline import __version__
from gangline.registry import model_files
from gangline.registry.folder_signature import sign_folder
from gangline.registry.model_card import render_card
from gangline.signing.keys import SigningKey
from gangline.signing.model_provenance import render_model_provenance
from gangline.signing.sbom import installed_packages, render_model_sbom
from gangline.spec.config.line import Line
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
    _write(folder / model_files.CONFIG, json.dumps(plain, sort_keys=True, indent=1, ensure_ascii=False) + "\n")


def write_metadata(
    folder: Path, record: Record, line: Line, *, model: str, version: int, checkpoint: str, key: SigningKey,
    of_program: bool = False,
) -> None:  # fmt: skip
    """Write what depends on the version, over what an earlier number left; the signature comes last."""
    (folder / model_files.SIGNATURE).unlink(missing_ok=True)
    (folder / model_files.PROVENANCE).unlink(missing_ok=True)
    weights = sum(path.stat().st_size for path in folder.iterdir() if path.name not in model_files.COMPLETE)
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
    _write(folder / model_files.CARD, card)
    bill = render_model_sbom(
        model=model, version=version, run=record.run.id, created=record.run.created, packages=installed_packages()
    )
    _write(folder / model_files.SBOM, bill)
    subjects = model_files.list_folder(folder, "", of_program=of_program)
    statement = render_model_provenance(record, model=model, version=version, checkpoint=checkpoint, files=subjects)
    _write(folder / model_files.PROVENANCE, statement)
    sign_folder(folder, key)


def holds_program_files(folder: Path) -> bool:
    """Does `config.json` say that the weights are files of a program? What cannot be read says nothing."""
    try:
        plain = json.loads((folder / model_files.CONFIG).read_bytes()[:_MOST_CONFIG_BYTES])
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(plain, dict) and plain.get("format") == PROGRAM_FORMAT


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
