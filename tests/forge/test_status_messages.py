"""What a forge is told of a record: four statuses, one comment."""

from dataclasses import replace

import pytest
from tests.report import records

from gangline.forge.protocol import COMMENT_LIMIT, STATUS_CONTEXTS
from gangline.forge.pull_request_comment import comment_marker, comment_text
from gangline.forge.status_messages import run_page, statuses

EVIL = "\x1b[31m@everyone\r\nevil " + "x" * 500


def states(record, **options):
    return {status.context.removeprefix("gangline/"): status.state for status in statuses(record, **options)}


def test_there_is_one_status_for_each_context():
    for record in (records.bare(), records.passed(), records.large()):
        assert tuple(status.context for status in statuses(record)) == STATUS_CONTEXTS


def test_a_run_that_has_not_begun_is_pending():
    assert set(states(records.bare()).values()) == {"pending"}


def test_a_run_that_passed_is_green():
    assert set(states(records.passed()).values()) == {"success"}


def test_a_gate_that_could_not_judge_is_reported_first():
    (gate,) = (each for each in statuses(records.passed()) if each.context == "gangline/gate")
    assert gate.description.startswith("1 gate could not judge: ")
    assert "**✓ passed, 1 gate could not judge** " in comment_text(records.passed(), None)


def test_a_refused_run_is_red_at_its_gate_and_says_what_was_not_reached():
    record = records.refused()
    assert states(record) == {"build": "success", "train": "success", "gate": "failure", "publish": "error"}
    assert statuses(record)[-1].description == "not reached, as the run was refused"


def test_a_stage_that_runs_says_how_far_it_is():
    record = records.bare()
    reported = {s.context: s for s in statuses(record, running="train", live="ddp-2 62/120 loss 2.71 · ETA 7 s")}
    assert reported["gangline/train"].description == "ddp-2 62/120 loss 2.71 · ETA 7 s"
    assert reported["gangline/train"].state == "pending"
    assert reported["gangline/gate"].description == "not begun"


def test_descriptions_are_short_harmless_lines():
    record = records.passed()
    stages = {name: replace(info, message=EVIL) for name, info in record.stages.items()}
    for status in statuses(replace(record, stages=stages)):
        assert len(status.description) <= 140
        assert status.description.isprintable()


def test_a_superseded_run_is_not_a_failure():
    record = records.passed()
    run = replace(record.run, verdict="superseded", reason="superseded by cheap-2")
    stages = record.stages | {"train": replace(record.stages["train"], state="cancelled")}
    reported = {s.context: s for s in statuses(replace(record, run=run, stages=stages))}
    assert reported["gangline/train"].state == "error"
    assert "superseded by cheap-2" in reported["gangline/train"].description


def test_a_status_leads_to_the_run_page_else_to_whatever_drives():
    record = records.passed()
    assert run_page(record, "https://runs.example.org/") == f"https://runs.example.org/runs/{record.run.id}"
    assert run_page(record, None) is None
    driver = replace(record.run.driver, url="https://jenkins.example.org/job/7/")
    assert (
        run_page(replace(record, run=replace(record.run, driver=driver)), None) == "https://jenkins.example.org/job/7/"
    )
    assert run_page(replace(record, links={"kfp": "javascript:alert(1)"}), None) is None


@pytest.mark.parametrize("make", [records.bare, records.passed, records.refused, records.large])
def test_a_comment_carries_its_marker_and_fits(make):
    record = make()
    text = comment_text(record, "https://runs.example.org")
    assert text.startswith(comment_marker(record.run.project) + "\n**")
    assert len(text) <= COMMENT_LIMIT
