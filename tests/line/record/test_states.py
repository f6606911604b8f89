"""What may happen to a run, played at random: whoever starts, stops, cancels and ends it, the record stays legal."""

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.line.records import record

from gangline.errors import CancelledError, GanglineError, IntegrityError, UsageError
from gangline.line.record import states
from gangline.spec.record import STAGES

stage_names = st.sampled_from(STAGES)
verdicts = st.sampled_from(["passed", "refused", "failed", "cancelled", "superseded"])


class RunMachine(RuleBasedStateMachine):
    """Several drivers and bystanders, each change applied to what stands, as compare-and-set does."""

    def __init__(self):
        super().__init__()
        self.record = record()
        self.final: dict[str, str] = {}
        self.verdict: str | None = None

    def apply(self, change):
        try:
            after = change(self.record)
        except (UsageError, CancelledError):
            return
        states.check(self.record, after)
        self.record = after

    @rule(name=stage_names)
    def start(self, name):
        self.apply(lambda each: states.start_stage(each, name, now="t"))

    @rule(name=stage_names, state=st.sampled_from(["done", "taken", "skipped", "failed", "cancelled"]))
    def end(self, name, state):
        self.apply(lambda each: states.end_stage(each, name, state, now="t", seconds=1.0, message="m"))

    @rule(reason=st.sampled_from(["by hand", "superseded by x"]))
    def cancel(self, reason):
        self.apply(lambda each: states.request_cancel(each, reason))

    @rule(verdict=verdicts)
    def conclude(self, verdict):
        self.apply(lambda each: states.end_run(each, verdict, now="t", reason="r", exit_code=1))

    @rule()
    def tell(self):
        self.apply(lambda each: states.add_event(each, now="t", stage="train", kind="k", text="x" * 9999))

    @precondition(lambda self: self.record.run.state == "ended")
    @rule(name=st.sampled_from([each for each in STAGES if each != "report"]))
    def nothing_but_the_report_starts_after_the_end(self, name):
        with pytest.raises(UsageError):
            states.start_stage(self.record, name, now="t")

    @precondition(lambda self: self.record.run.cancel_requested)
    @rule(name=st.sampled_from([each for each in STAGES if each != "report"]))
    def nothing_starts_once_it_is_to_stop(self, name):
        with pytest.raises((UsageError, CancelledError)):
            states.start_stage(self.record, name, now="t")

    @invariant()
    def one_terminal_state(self):
        if self.verdict is not None:
            assert self.record.run.verdict == self.verdict
        if self.record.run.state == "ended":
            assert self.record.run.verdict is not None
            self.verdict = self.record.run.verdict
            open_ones = [n for n in STAGES if n != "report" and states.stage(self.record, n).state not in states.FINAL]
            assert not open_ones

    @invariant()
    def final_stages_stay(self):
        for name in STAGES:
            state = states.stage(self.record, name).state
            assert self.final.get(name, state) == state
            if state in states.FINAL:
                self.final[name] = state

    @invariant()
    def events_are_bounded(self):
        assert len(self.record.events) <= states.MAX_EVENTS
        assert all(len(event.text) <= states.MAX_TEXT for event in self.record.events)


TestRunMachine = pytest.mark.row("C7")(RunMachine.TestCase)
RunMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_what_never_changes_is_held_by_the_check():
    before = record()
    for after in (
        replace(before, commit=replace(before.commit, sha="0" * 40)),
        replace(before, inputs=replace(before.inputs, line="other")),
        replace(before, run=replace(before.run, id="other-9f31c2a0-aaaaaa")),
    ):
        with pytest.raises(IntegrityError):
            states.check(before, after)


def test_inputs_are_filled_once():
    before = record()
    filled = replace(before, inputs=replace(before.inputs, code="c"))
    states.check(before, filled)
    with pytest.raises(IntegrityError, match="inputs"):
        states.check(filled, replace(filled, inputs=replace(filled.inputs, code="d")))


def test_a_verdict_never_changes():
    ended = states.end_run(record(), "failed", now="t", reason="r", exit_code=30)
    assert states.end_run(ended, "passed", now="t", reason="r", exit_code=0) is ended
    with pytest.raises(IntegrityError):
        states.check(ended, replace(ended, run=replace(ended.run, verdict="passed")))


def test_superseding_and_cancelling_are_distinguished_by_the_reason():
    assert states.cancel_verdict(states.request_cancel(record(), "superseded by x")) == "superseded"
    assert states.cancel_verdict(states.request_cancel(record(), "by hand")) == "cancelled"


def test_first_reason_to_stop_stays():
    asked = states.request_cancel(record(), "by hand")
    assert states.request_cancel(asked, "superseded by x") is asked


def test_a_stage_that_ended_does_not_start_again():
    done = states.end_stage(
        states.start_stage(record(), "build", now="t"), "build", "done", now="t", seconds=1, message=""
    )
    with pytest.raises(GanglineError, match="done already"):
        states.start_stage(done, "build", now="t")
