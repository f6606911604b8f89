"""Schemas of answers: those that are published are those of the code."""

from pathlib import Path

from gangline.report.schemas import ANSWERS
from gangline.spec.documents.schema import write_schemas

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


def test_committed_schemas_of_answers_are_fresh(tmp_path):
    written = write_schemas(tmp_path, ANSWERS)
    assert {path.name for path in written} == {"bisect.json", "comparison.json", "profile.json"}
    for path in written:
        assert (SCHEMAS / path.name).read_text() == path.read_text(), "make schemas writes them anew"
