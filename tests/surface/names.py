"""Every name that a model repository, a dashboard, a script or a stored record holds on to, a line each.

    python -m tests.surface.names

adds the new ones to `names.txt`. It takes none out: what goes breaks files of users, so a person deletes its line, and
CHANGELOG.md says what to do instead. Names are read from generated documents, manifests and texts, never from modules,
so that moving code changes nothing here.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
KEPT = Path(__file__).with_name("names.txt")
REFERENCE, SCHEMAS = ROOT / "docs" / "reference", ROOT / "docs" / "schemas"
_TEXTS = ("src", "jenkins", "manifests", "components", "pipelines", "monitoring")
_VERBS = ("get", "put", "post", "patch", "delete")


def names() -> list[str]:
    found = [*_commands(), *_documents(), *_series(), *_exit_codes(), *_routes(), *_python(), *_texts(), *_manifests()]
    return sorted(set(found))


def kept() -> list[str]:
    return KEPT.read_text().splitlines()


def _commands() -> Iterator[str]:
    for name, text in _sections("commands.md", "gangline [a-z -]+"):
        yield f"command {name}"
        for flags in re.findall(r"^  ((?:-\w, )?--[\w/-]+(?:, -\w)?)", text, re.MULTILINE):
            yield from (f"command {name} {flag}" for flag in re.split(r", |/", flags))


def _documents() -> Iterator[str]:
    """Keys of both files, and fields of every document that is stored or printed."""
    for path in sorted(SCHEMAS.glob("*.json")):
        if path.stem != "openapi":
            schema = json.loads(path.read_text())
            yield from (f"{path.stem} {field}" for field in _fields(schema, schema["$defs"], ()))


def _fields(schema: dict[str, Any], types: dict[str, Any], above: tuple[str, ...]) -> Iterator[str]:
    for name, field in schema.get("properties", {}).items():
        path = ".".join([*above, name])
        yield f"{path} {_kind(field)}"
        yield from (f"{path} {json.dumps(value)}" for value in _values(field))
        for inner in _references(field):
            if len(above) < 6:  # types that hold themselves
                yield from _fields(types[inner], types, (*above, name))


def _kind(field: dict[str, Any]) -> str:
    if "anyOf" in field:
        return "|".join(sorted(_kind(each) for each in field["anyOf"]))
    return "one of" if "enum" in field else str(field.get("type", "object"))


def _values(field: dict[str, Any]) -> Iterator[Any]:
    """A line each: one more breaks no file."""
    yield from field.get("enum", ())
    for each in field.get("anyOf", ()):
        yield from _values(each)


def _references(field: Any) -> Iterator[str]:
    if isinstance(field, dict):
        if "$ref" in field:
            yield field["$ref"].rpartition("/")[2]
        for name, inner in field.items():
            if name != "default":
                yield from _references(inner)
    elif isinstance(field, list):
        for inner in field:
            yield from _references(inner)


def _series() -> Iterator[str]:
    for name, kind, labels in _rows("metrics.md", r"`(gangline_\w+)` \| (\w+) \| ([^|]*)"):
        yield " ".join(["metric", name, kind, *re.findall(r"`(\w+)`", labels)])


def _exit_codes() -> Iterator[str]:
    for code, classes in _rows("exit-codes.md", r"(\d+)[^|]* \| ([^|]*)"):
        yield " ".join(["exit", code, *re.findall(r"`(\w+)`", classes)])


def _routes() -> Iterator[str]:
    document = json.loads((SCHEMAS / "openapi.json").read_text())
    for path, methods in document["paths"].items():
        for verb in _VERBS:
            if verb in methods:
                route = f"http {verb.upper()} {path}"
                yield route
                yield from (f"{route} {each['in']} {each['name']}" for each in methods[verb].get("parameters", ()))


def _python() -> Iterator[str]:
    for name, text in _sections("python.md", r"[\w.]+"):
        yield f"python {name}"
        for member in re.findall(r"^- `(\w+)(?:[(:]|`)", text, re.MULTILINE):
            yield f"python {name}.{member}"


def _texts() -> Iterator[str]:
    """Environment variables, wherever one is written down."""
    for path in sorted(path for folder in _TEXTS for path in (ROOT / folder).rglob("*") if path.is_file()):
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        yield from (f"environment {name}" for name in re.findall(r"\bGANGLINE_[A-Z0-9_]*[A-Z0-9]\b", text))


def _manifests() -> Iterator[str]:
    """Objects that a cluster is given, and labels and annotations of ours on them and on gangs."""
    goldens = sorted((ROOT / "tests" / "golden" / "kubernetes").glob("*.yaml"))
    for path in [*sorted((ROOT / "manifests" / "rendered").glob("*.yaml")), *goldens]:
        for each in yaml.safe_load_all(path.read_text()):
            if not each:
                continue
            if path not in goldens:
                yield f"kubernetes {each['kind']} {each['metadata'].get('namespace', '')}/{each['metadata']['name']}"
            yield from (f"kubernetes mark {key}" for key in re.findall(r"\bgangline/[a-z-]+", json.dumps(each)))


def _sections(page: str, pattern: str) -> Iterator[tuple[str, str]]:
    _, *parts = re.split(rf"^### `({pattern})`$", (REFERENCE / page).read_text(), flags=re.MULTILINE)
    yield from zip(parts[::2], parts[1::2], strict=True)


def _rows(page: str, pattern: str) -> Iterator[tuple[str, ...]]:
    yield from re.findall(rf"^\| {pattern}", (REFERENCE / page).read_text(), re.MULTILINE)


if __name__ == "__main__":
    KEPT.write_text("\n".join(sorted({*(kept() if KEPT.exists() else ()), *names()})) + "\n")
