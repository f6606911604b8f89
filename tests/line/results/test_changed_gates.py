"""What a commit changes of its gates is said with their verdicts."""

from dataclasses import replace

from tests.line.records import record

from gangline.line.stages.gate import with_changes
from gangline.spec.codec import to_plain
from gangline.spec.config.line import QualityGate
from gangline.spec.measurements import Metric
from gangline.spec.record import Gate

LOSS = QualityGate(metric="loss", better="lower", tolerance_percent=1.0)
PASSED = Gate(name="quality:loss", verdict="yes", reason="1.5 is within the tolerance")
BUDGET = Gate(name="budget", verdict="yes", reason="no bound is set")


def of(value, *gates, values=None):
    found = record()
    plain = {"gate.quality": [to_plain(each) for each in gates]} if values is None else values
    metrics = {"loss": Metric(value=value)}
    return replace(found, inputs=replace(found.inputs, values=plain), metrics=metrics)


def after(ours, base):
    return list(with_changes([BUDGET, PASSED], ours, base, of(1.5, *ours)))


def test_keys_that_differ_from_the_base_are_named_with_both_values():
    found = after([replace(LOSS, tolerance_percent=80.0, limit=2.0)], of(1.0, LOSS))
    said = "; since the base: limit none -> 2.0, tolerance_percent 1.0 -> 80.0"
    assert found == [BUDGET, replace(PASSED, reason=PASSED.reason + said)]


def test_equal_and_new_gates_are_as_judged():
    assert after([LOSS], of(1.0, LOSS)) == [BUDGET, PASSED]
    assert after([LOSS], of(1.0)) == [BUDGET, PASSED]


def test_a_metric_that_only_the_line_of_the_base_judges_is_unknown_with_both_values():
    *judged, dropped = list(with_changes([BUDGET], [], of(1.0, LOSS), of(1.5)))
    assert judged == [BUDGET]
    assert (dropped.name, dropped.verdict) == ("quality:loss", "unknown")
    assert dropped.reason == "the base's line judges it, this one does not: 1.5, base 1"


def test_a_record_in_another_form_changes_nothing():
    for values in ({}, {"gate.quality": "loss"}, {"gate.quality": [1, {"better": "lower"}]}):
        assert after([LOSS], of(1.0, values=values)) == [BUDGET, PASSED]
