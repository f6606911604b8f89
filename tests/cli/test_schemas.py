"""What `--json` prints is what docs/schemas promises."""

import json
from pathlib import Path

from jsonschema import Draft202012Validator

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


def test_show_json_fits_the_published_schema_of_the_record(gangline):
    schema = json.loads((SCHEMAS / "record.json").read_text())
    document = json.loads(gangline("show", "--json").stdout)
    Draft202012Validator(schema).validate(document)
    assert document["run"]["verdict"] == "refused"
