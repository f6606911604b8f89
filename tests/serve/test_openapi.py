"""The document of the API: current, whole, and honest about what needs a token."""

import json
from pathlib import Path

from tools.openapi import main, openapi_text

from gangline.serve.app import openapi_document
from gangline.serve.web.permissions import RULES

COMMITTED = Path(__file__).parents[2] / "docs" / "schemas" / "openapi.json"


def test_committed_document_is_current(tmp_path):
    main(tmp_path)
    assert (tmp_path / "openapi.json").read_text() == COMMITTED.read_text(), "make schemas writes it anew"


def test_document_describes_every_route_for_programs_and_who_may_call_it():
    document = openapi_document()
    assert document["openapi"].startswith("3.1")
    described = {(method.upper(), path) for path, each in document["paths"].items() for method in each}
    programs = {
        (r.method, r.path) for r in RULES if not r.is_page and r.path not in ("/openapi.json", "/hooks/{forge}")
    }
    assert described == programs
    for rule in RULES:
        operation = document["paths"].get(rule.path, {}).get(rule.method.lower())
        if operation is not None:
            assert ("security" in operation) == (rule.scope != "open"), rule


def test_every_reference_leads_somewhere_and_refusals_are_problems():
    text = openapi_text()
    document = json.loads(text)
    names = {part.split('"', 1)[0] for part in text.split('"$ref": "#/components/schemas/')[1:]}
    assert names <= set(document["components"]["schemas"])
    for operations in document["paths"].values():
        for operation in operations.values():
            for status, said in operation["responses"].items():
                if int(status) >= 400:
                    assert list(said["content"]) == ["application/problem+json"], (operation["operationId"], status)
