"""Stored pages of a run: what they say is what its record says, also after a result that came later."""

import re
from dataclasses import replace
from html import unescape

import pytest
from tests.line import repositories

from gangline.drill.catalogue import DRILLS
from gangline.drill.evaluate import not_injected, with_drill
from gangline.line.record.store import RecordStore
from gangline.line.results.verification import verify
from gangline.line.stages.report import redraw
from gangline.report.run.terminal import page
from gangline.spec.measurements import Drill
from gangline.spec.run_flags import UNDER_WAY, stage

HELD = Drill(
    name="kill-rank", row="T1", result="held_late", reason="recovered in 20.0 s, target <= 15 s", lost_steps=4,
    lost_seconds=104.553, arguments={"rank": 0, "step": 10, "seed": 1},
)  # fmt: skip


def stored(workspace, record, name="report.html"):
    """Text of a page of the run in the store, without markup."""
    text = workspace.store.get(f"{record.prefix}/{name}").data.decode()
    return " ".join(unescape(re.sub(r"<style>.*?</style>|<[^>]*>", " ", text, flags=re.DOTALL)).split())


def change(workspace, record, drill):
    return RecordStore.of(workspace.store, record, workspace.sealer).change(lambda each: with_drill(each, drill))


@pytest.fixture
def ended(workspace):
    return workspace.run()


def test_a_result_after_the_report_is_on_the_stored_pages_whose_digests_the_record_has(workspace, ended):
    record = redraw(workspace.store, change(workspace, ended, HELD), workspace.sealer)
    for name in ("report.html", "report.md"):
        assert "held late recovered in 20.0 s" in stored(workspace, record, name)
        assert "1 min 45 s" in stored(workspace, record, name)
    kinds = [each.kind for each in record.artifacts]
    assert (kinds.count("report"), kinds.count("junit")) == (2, 1)
    checks = verify(record.run.id, store=workspace.store, repo=workspace.repo, **workspace.where)
    assert all(each.ok for each in checks), checks


def test_pages_name_all_artifacts_but_themselves(workspace, ended):
    again = redraw(workspace.store, ended, workspace.sealer)
    for shown in (stored(workspace, ended), stored(workspace, again)):
        assert "plan blobs/sha256/" in shown
        assert "report report.html" not in shown


def test_a_run_without_a_report_is_not_drawn_early(workspace):
    record = workspace.run(until="gate")
    assert redraw(workspace.store, record, workspace.sealer) == record
    assert workspace.store.get(f"{record.prefix}/report.html") is None
    assert stage(record, "report").state == "waiting"


def test_a_drill_that_has_no_result_yet_is_never_said_not_to_have_struck(workspace, ended):
    mark = not_injected(DRILLS["kill-rank"], UNDER_WAY, seed=1)
    record = redraw(workspace.store, change(workspace, ended, mark), workspace.sealer)
    for text in (stored(workspace, record), stored(workspace, record, "report.md"), page(record)):
        assert "no result yet" in text
        assert "not struck" not in text
        assert "under way" not in text
    missed = not_injected(DRILLS["kill-rank"], "the training ended before step 60", seed=1)
    record = replace(record, drills=(missed,))
    assert "not struck the training ended before step 60" in page(record)


def test_the_ledger_of_a_run_that_was_drilled_while_it_trained_has_the_cost_of_the_drill(workspace):
    """The result of such a drill is in the record before the training has a ledger."""
    planned = workspace.run(until="submit")
    change(workspace, planned, replace(HELD, lost_seconds=0.01))
    record = workspace.run()
    assert record.ledger.seconds["drill"] == pytest.approx(0.01)
    assert "drill kill-rank: held late" in stored(workspace, record, "report.md").replace("*", "")


def test_a_restart_of_a_program_that_accounts_for_no_steps_leaves_the_lost_work_unknown(workspace):
    text = (
        "import os, pathlib, signal\nmark = pathlib.Path(os.environ['GANGLINE_OUT'], 'tried')\n"
        "if not mark.exists():\n    mark.touch(); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    repositories.commit(workspace.repo, {"answer.py": text + repositories.PROGRAM})
    record = workspace.run()
    assert record.gang.restarts == 1
    said = "work lost by 1 restart: not known"
    assert said in page(record)
    assert said in stored(workspace, record)
    assert said in stored(workspace, record, "report.md")
