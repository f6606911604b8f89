"""Writes the JSON schemas of files, records and answers of commands: `python -m tools.json_schemas docs/schemas`."""

import json
import sys
import types
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from gangline.optim.plan.phases import MatrixPlanReport
from gangline.report.comparison.types import Comparison
from gangline.spec.bisect import BisectState
from gangline.spec.bounds import split_bounds
from gangline.spec.codec import to_plain
from gangline.spec.config.fabric import FabricFile
from gangline.spec.config.line import Line
from gangline.spec.config.site import Site
from gangline.spec.devices import Inventory
from gangline.spec.gang.podset import PodSet
from gangline.spec.gang.profiling import ProfileSummary
from gangline.spec.gang.status import GangEnd, GangResult, KeeperStatus
from gangline.spec.plan import Plan
from gangline.spec.record import Record
from tools.key_tables import class_doc, field_docs

Schema = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"
DOCUMENTS: dict[str, type] = {
    "line": Line,
    "site": Site,
    "fabric": FabricFile,
    "inventory": Inventory,
    "plan": Plan,
    "podset": PodSet,
    "keeper_status": KeeperStatus,
    "gang_end": GangEnd,
    "gang_result": GangResult,
    "record": Record,
    "bisect": BisectState,
    "comparison": Comparison,
    "profile": ProfileSummary,
    "matrix_plan": MatrixPlanReport,
}
"""Files and stored documents, then what commands print."""
_SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def schema_of(cls: type) -> Schema:
    """JSON Schema (2020-12) of a document: every field, nothing else; a document's version is a constant."""
    definitions: dict[str, Schema] = {}
    body = _table(cls, definitions)
    return {"$schema": DIALECT, "title": cls.__name__, **body, "$defs": dict(sorted(definitions.items()))}


def write_schemas(folder: Path) -> list[Path]:
    """One file for each document; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, cls in DOCUMENTS.items():
        written.append(folder / f"{name}.json")
        written[-1].write_text(json.dumps(schema_of(cls), indent=2, ensure_ascii=False) + "\n", "utf-8")
    return written


def _table(cls: type, definitions: dict[str, Schema]) -> Schema:
    hints, docs = get_type_hints(cls, include_extras=True), field_docs(cls)
    properties = {each.name: _property(each, hints[each.name], docs, definitions) for each in fields(cls)}
    required = [each.name for each in fields(cls) if each.default is MISSING and each.default_factory is MISSING]
    described = {"description": class_doc(cls)} if class_doc(cls) else {}
    named = {"required": required} if required else {}
    return {"type": "object", **described, "properties": properties, **named, "additionalProperties": False}


def _property(field: Field[Any], kind: Any, docs: dict[str, str], definitions: dict[str, Schema]) -> Schema:
    if field.name == "schema":
        return {"const": field.default, "description": "Version of this form; a newer one is refused."}
    found = dict(_kind(kind, definitions))
    if field.name in docs:
        found["description"] = docs[field.name]
    if field.default is not MISSING:
        found["default"] = to_plain(field.default)
    return found


def _kind(kind: Any, definitions: dict[str, Schema]) -> Schema:
    kind, bounds = split_bounds(kind)
    if bounds:
        return _bounded(
            _kind(kind, definitions), {name: limit for each in bounds for name, limit in each.keywords.items()}
        )
    origin: Any = get_origin(kind)
    inner = get_args(kind)
    if kind in _SCALARS:
        return {"type": _SCALARS[kind]}
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_kind(member, definitions) for member in inner]}
    if isinstance(kind, type) and is_dataclass(kind):
        return _reference(kind, definitions)
    return _collection(origin, inner, definitions)


def _bounded(schema: Schema, limits: dict[str, float]) -> Schema:
    """A number with limits, or a table of such numbers; JSON Schema applies limits to numbers alone."""
    if "additionalProperties" in schema:
        return {**schema, "additionalProperties": {**schema["additionalProperties"], **limits}}
    return {**schema, **limits}


def _collection(origin: Any, inner: tuple[Any, ...], definitions: dict[str, Schema]) -> Schema:
    if origin is dict:
        return {"type": "object", "additionalProperties": _kind(inner[1], definitions)}
    if origin is not tuple:
        return {}
    if inner[-1] is Ellipsis:
        return {"type": "array", "items": _kind(inner[0], definitions)}
    places = [_kind(each, definitions) for each in inner]
    return {"type": "array", "prefixItems": places, "minItems": len(places), "maxItems": len(places)}


def _reference(cls: type, definitions: dict[str, Schema]) -> Schema:
    if cls.__name__ not in definitions:
        definitions[cls.__name__] = {}
        definitions[cls.__name__] = _table(cls, definitions)
    return {"$ref": f"#/$defs/{cls.__name__}"}


if __name__ == "__main__":
    for path in write_schemas(Path(sys.argv[1])):
        sys.stdout.write(f"{path}\n")
