"""`gangline profile` on what the store holds."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from tests.report import records
from tests.report.test_profile_page import summary

from gangline.storage.open import open_store

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


@pytest.fixture
def profiled(workspace):
    store = open_store(f"file:{workspace / '.gangline' / 'store'}")
    prefix = f"{records.passed().gang_prefix}/profiles/10-12"
    store.put(f"{prefix}/rank-0.json", summary(0).to_json())
    store.put(f"{prefix}/rank-0.trace.json.gz", b"a whole trace")
    return workspace


def test_what_was_profiled_is_shown_and_its_page_written(gangline, profiled):
    shown = gangline("profile", records.BASE_RUN)
    page = profiled / ".gangline" / "reports" / f"{records.BASE_RUN}-profile" / "10-12.html"
    assert shown.stdout.startswith("steps 10 to 12 · 1 rank")
    assert shown.stdout.strip().endswith(str(page))
    assert f"{records.passed().gang_prefix}/profiles/10-12/rank-0.trace.json.gz" in page.read_text()


def test_whole_traces_come_out_of_the_store_where_they_are_wanted(gangline, profiled, tmp_path):
    assert gangline("profile", records.BASE_RUN, "--out", str(tmp_path / "here")).exit_code == 0
    assert (tmp_path / "here" / "10-12" / "rank-0.trace.json.gz").read_bytes() == b"a whole trace"
    assert "<code>10-12/rank-0.trace.json.gz</code>" in (tmp_path / "here" / "10-12.html").read_text()


def test_json_holds_summaries_by_their_schema(gangline, profiled):
    (window,) = json.loads(gangline("profile", records.BASE_RUN, "--json").stdout)
    assert window["steps"] == "10-12"
    Draft202012Validator(json.loads((SCHEMAS / "profile.json").read_text())).validate(window["ranks"][0])


def test_nothing_profiled_says_how_and_an_ended_run_cannot_be_asked(gangline, profiled):
    assert "--steps A:B" in gangline("profile", records.THIS_RUN).stderr
    refused = gangline("profile", records.THIS_RUN, "--steps", "1:2")
    assert refused.exit_code == 2
    assert "does not train any more" in str(refused.exception)
    assert gangline("profile", records.THIS_RUN, "--steps", "x").exit_code == 2
