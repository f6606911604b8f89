"""Writes `api.md`, the reference page of the HTTP API: `python -m tools.api_page docs/reference`."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gangline.serve.app import openapi_document
from gangline.serve.web.permissions import MatchedRule, RouteRule, find_rule

Json = Mapping[str, Any]
OPENING = """# HTTP API

What `gangline serve` answers; how to start it and who gets a token: [the service](../guides/service.md). Every request
but those marked *open* carries `Authorization: Bearer gl_...`. Refusals are problems (RFC 9457) with one sentence in
`detail`: 401 without a token, 403 without the role, 404 also for what is not yours to see, 429 too often, 503 while the
store is away.

The same for programs: [openapi.json](../schemas/openapi.json), which a service gives at `/openapi.json`, too.
Generated from the code; `make schemas` rewrites it.
"""
_SCOPES = {
    "open": "open",
    "own": "{role} of some project; others' are left out",
    "named": "{role} of the project that the body names",
    "run": "{role} of the run's project",
    "order": "{role} of the order's project",
    "all": "{role} of every project",
}


def api_page() -> str:
    """Markdown: a section for each operation, in the document's order."""
    document = openapi_document()
    parts = [OPENING]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            parts.append("\n\n".join(_section(method.upper(), path, operation, document)))
    return "\n".join(f"{part.rstrip()}\n" for part in parts)


def _section(method: str, path: str, operation: Json, document: Json) -> Iterator[str]:
    yield f"## `{method} {path}`"
    yield operation["description"].strip()
    asked = find_rule(method, path)
    if isinstance(asked, MatchedRule):
        yield f"For: {_for(asked.rule)}."
    rows = [_row(f"`{each['name']}`", each["in"], each) for each in operation.get("parameters", ())]
    rows += [_row(f"`{name}`", "body", {"schema": schema, **schema}) for name, schema in _body(operation, document)]
    if rows:
        yield "\n".join(["| | in | type | |", "|---|---|---|---|", *rows])
    good = [(code, answer["description"]) for code, answer in operation["responses"].items() if code < "400"]
    answers = [f"{code} {said.rstrip('.')}" for code, said in good]
    yield f"Answers: {'; '.join(answers)}."


def _for(rule: RouteRule) -> str:
    return _SCOPES[rule.scope].format(role=rule.role)


def _row(name: str, place: str, field: Json) -> str:
    said = " ".join(str(field.get("description") or field["schema"].get("description") or "").split())
    return f"| {name} | {place} | {_type(field['schema'])} | {said.replace('|', chr(92) + '|')} |"


def _body(operation: Json, document: Json) -> Iterator[tuple[str, Json]]:
    """Fields of the JSON body, where there is one."""
    content = operation.get("requestBody", {}).get("content", {})
    for media in content.values():
        name = media["schema"].get("$ref", "").rpartition("/")[2]
        found = document["components"]["schemas"].get(name, media["schema"])
        yield from found.get("properties", {}).items()


def _type(schema: Json) -> str:
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"] if each.get("type") != "null")
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    return str(schema.get("type") or schema.get("$ref", "anything").rpartition("/")[2])


if __name__ == "__main__":
    page = Path(sys.argv[1]) / "api.md"
    page.write_text(api_page(), "utf-8")
    sys.stdout.write(f"{page}\n")
