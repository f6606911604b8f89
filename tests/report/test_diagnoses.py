"""What was slow is shown with its cost and what to do, wherever a run's time is told."""

from dataclasses import replace

import pytest
from tests.report.records import passed

from gangline.report.diagnoses import diagnosis_text
from gangline.report.run.html import render_html
from gangline.report.run.markdown import render_markdown
from gangline.report.run.terminal import page
from gangline.spec.measurements import Diagnosis, Remedy
from gangline.spec.record import SLOW, Event, Record

SLOW_RANK = Diagnosis(
    kind="slow_rank", names=("rank 3",), evidence="since step 71 on a7: 1.32 times", cost_percent=8.76,
    action=Remedy(kind="quarantine", names=("a7",)),
)  # fmt: skip
RECORD = replace(
    passed(),
    diagnoses=(SLOW_RANK,),
    events=(Event(time="2026-01-01T00:00:00Z", stage="train", kind=SLOW, text="rank 3 is slow"),),
)


@pytest.mark.parametrize("draw", [page, render_markdown, render_html])
def test_diagnosis_is_shown_with_its_action_and_without_one_nothing_is(draw):
    for said in ("since step 71 on a7", "do not use a7 until it is tested", "8.8 %"):
        assert said in draw(RECORD)
    assert "slow rank" not in draw(passed()).lower()


@pytest.mark.parametrize(
    ("remedy", "said"),
    [
        (Remedy(kind="replace", names=("a7", "a8")), "replace: give the ranks of a7, a8 another server"),
        (Remedy(kind="new_shares", shares=(8, 7)), "new shares: split each step as 8, 7 samples by replica"),
        (
            Remedy(kind="new_shares", shares=(8, 7), saves_percent=6.25, most_percent=7),
            '"rebalance"): saves 6.2 % of a step, no split more than 7.0 %',
        ),
        (Remedy(kind="new_plan"), "new plan: plan again with another cut of the stages"),
    ],
)
def test_every_action_says_what_to_do(remedy, said):
    assert said in diagnosis_text(replace(SLOW_RANK, action=remedy))


def test_record_keeps_diagnoses():
    assert Record.from_json(RECORD.to_json()).diagnoses == (SLOW_RANK,)
