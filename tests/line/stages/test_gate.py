"""Verdicts: what refuses a run, what is not known yet, and what it says."""

from dataclasses import replace

import pytest
from tests.line.records import record

from gangline.line.stages.gate import judge
from gangline.spec.config.line import GateTable, QualityGate
from gangline.spec.measurements import Band, Curve, CurvePoint, Metric
from gangline.spec.record import Base, StageInfo

LOWER = QualityGate(metric="eval_loss", better="lower")
HIGHER = QualityGate(metric="eval_loss", better="higher")
BAND = Band(center=2.37, half=0.04, n=3, origin="base")


def verdicts(table, of, base_data=None):
    return {gate.name: (gate.verdict, gate.reason) for gate in judge(table, of, base_data=base_data)}


def with_metric(**fields):
    return replace(record(), metrics={"eval_loss": Metric(**fields)})


def quality(gate, of, **table):
    return verdicts(GateTable(quality=(gate,), **table), of)["quality:eval_loss"]


@pytest.mark.parametrize(
    ("gate", "value", "verdict"),
    [(LOWER, 2.40, "yes"), (LOWER, 2.42, "no"), (LOWER, 1.0, "yes"), (HIGHER, 2.32, "no"), (HIGHER, 9.0, "yes")],
)
def test_a_value_is_judged_on_the_base_band(gate, value, verdict):
    found = quality(gate, with_metric(value=value, base=2.37, base_band=BAND))
    assert found[0] == verdict
    assert "3 seeds of base" in found[1]


def test_a_band_is_never_narrower_than_the_floor():
    thin = replace(BAND, half=1e-9)
    wide = replace(LOWER, floor_percent=2.0)
    assert quality(LOWER, with_metric(value=2.40, base=2.37, base_band=thin))[0] == "no"
    assert quality(wide, with_metric(value=2.40, base=2.37, base_band=thin))[0] == "yes"


def test_a_base_on_other_data_is_not_a_comparison():
    of = with_metric(value=2.40, base=2.37, base_band=BAND)
    found = verdicts(GateTable(quality=(LOWER,)), of, base_data="other")["quality:eval_loss"]
    assert found == (
        "unknown",
        "the base was measured on other data and is not comparable; a limit judges without a base",
    )
    strict = GateTable(quality=(LOWER,), require_base=True)
    assert verdicts(strict, of, base_data="other")["quality:eval_loss"][0] == "no"
    limited = GateTable(quality=(replace(LOWER, limit=2.5),))
    assert verdicts(limited, of, base_data="other")["quality:eval_loss"][0] == "yes"
    assert verdicts(GateTable(quality=(LOWER,)), of, base_data=of.inputs.data)["quality:eval_loss"][0] == "yes"


def test_the_first_run_becomes_the_base():
    first = with_metric(value=2.4)
    assert quality(LOWER, first) == ("unknown", "no base yet: this run becomes the base")
    dirty = replace(first, commit=replace(first.commit, patch="p"))
    assert quality(LOWER, dirty) == ("unknown", "no base yet: it is compared with nothing")


def test_a_base_without_the_metric_is_not_called_missing():
    of = with_metric(value=2.4)
    of = replace(of, commit=replace(of.commit, base=Base(commit="c", run="r")))
    judged = verdicts(GateTable(quality=(LOWER,)), of, base_data=of.inputs.data)["quality:eval_loss"]
    assert judged == ("unknown", "the base r has no eval_loss: this run becomes the base")
    strict = GateTable(quality=(LOWER,), require_base=True)
    judged = verdicts(strict, of, base_data=of.inputs.data)["quality:eval_loss"]
    assert judged == ("no", "the base r has no eval_loss: gate.require_base requires one")
    gone = "the store has no record of the base r now: this run becomes the base"
    assert quality(LOWER, of) == ("unknown", gone)


def test_without_base_a_line_may_refuse():
    assert quality(LOWER, with_metric(value=2.4), require_base=True)[0] == "no"
    assert verdicts(GateTable(require_base=True), record())["base"][0] == "no"
    based = replace(record(), commit=replace(record().commit, base=Base(commit="c", run="r")))
    assert "base" not in verdicts(GateTable(require_base=True), based)


def test_a_base_without_band_judges_nothing():
    of = with_metric(value=9.9, base=2.37)
    assert quality(LOWER, of)[0] == "unknown"


def test_what_learns_a_band_is_named_and_what_needs_none_for_programs():
    of = with_metric(value=9.9, base=2.37)
    trained = replace(of, inputs=replace(of.inputs, values={"project.task": "model:Demo"}))
    assert "evaluate.seeds = 3" in quality(LOWER, trained)[1]
    assert "if the program reads its seed" in quality(LOWER, of)[1]
    assert "tolerance_percent or limit judges" in quality(LOWER, of)[1]
    assert "GANGLINE_SEED" not in quality(LOWER, trained)[1]
    values = trained.inputs.values | {"train.start.checkpoint": "runs/p/c/r/gang/checkpoints/step-00000010"}
    went_on = replace(trained, inputs=replace(trained.inputs, values=values))
    assert "evaluate.seeds = 3" not in quality(LOWER, went_on)[1]
    assert "; tolerance_percent or limit judges without one, as a run" in quality(LOWER, went_on)[1]


def test_a_band_whose_seeds_gave_equal_values_says_so_and_refuses_beyond_its_floor():
    of = with_metric(value=2.0, base=2.0, base_band=Band(center=2.0, half=0.002, n=3, origin="base", equal=True))
    verdict, reason = quality(LOWER, of)
    assert verdict == "yes"
    assert "as if the program did not use its seed: the band is only its floor" in reason
    assert quality(LOWER, replace(of, metrics={"eval_loss": replace(of.metrics["eval_loss"], value=2.1)}))[0] == "no"


@pytest.mark.parametrize(("better", "far"), [("lower", 1.5), ("higher", 2.5)])
def test_a_value_beyond_the_good_side_is_not_called_within(better, far):
    of = with_metric(value=far, base=2.0, base_band=Band(center=2.0, half=0.1, n=3, origin="base"))
    verdict, reason = quality(replace(LOWER, better=better), of)
    assert (verdict, reason) == ("yes", f"{far} is better than the base band 2 ± 5.0 % (3 seeds of base)")


@pytest.mark.parametrize(
    ("better", "value", "verdict"), [("lower", 2.0, "yes"), ("lower", 2.1, "no"), ("higher", 2.1, "yes")]
)
def test_a_limit_replaces_the_band(better, value, verdict):
    gate = QualityGate(metric="eval_loss", better=better, limit=2.05)
    assert quality(gate, with_metric(value=value, base=2.37, base_band=BAND))[0] == verdict


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_a_number_is_refused(value):
    assert quality(LOWER, with_metric(value=value))[0] == "no"


@pytest.mark.parametrize("gate", [LOWER, replace(LOWER, limit=2.5), replace(LOWER, tolerance_percent=2.0)])
def test_a_metric_that_no_one_reports_is_refused_and_the_nearest_one_is_named(gate):
    of = replace(record(), metrics={"eval_los": Metric(value=2.4), "loss": Metric(value=2.5)})
    verdict, reason = quality(gate, of)
    assert verdict == "no"
    assert "eval_loss was not reported; reported: eval_los, loss, did you mean eval_los?" in reason


@pytest.mark.parametrize("base_data", [None, "other"])
def test_a_metric_that_no_one_reports_is_refused_whatever_the_base(base_data):
    assert verdicts(GateTable(quality=(LOWER,)), record(), base_data)["quality:eval_loss"][0] == "no"


@pytest.mark.parametrize(
    ("values", "joined", "works"),
    [
        ({"project.task": "model:Demo"}, True, "evaluate(model, batch) of the task"),
        ({"project.command": ["python"]}, True, "program.report(eval_loss=...) of a Program, session.report("),
        ({"project.command": ["python"]}, False, "from gangline.train import Program; program = Program().start();"),
    ],
)
def test_who_reports_nothing_is_shown_where_by_the_form_of_the_program(values, joined, works):
    of = replace(record(), inputs=replace(record().inputs, values=values))
    of = replace(of, stages={"train": StageInfo(state="done", outputs={"joined": joined})})
    assert works in quality(LOWER, of)[1]


def test_a_tolerance_judges_on_the_value_of_one_run():
    gate = replace(LOWER, tolerance_percent=2.0)
    around = Band(center=2.0, half=0.04, n=1, origin="base")
    verdict, reason = quality(gate, with_metric(value=2.03, base=2.0, base_band=around))
    assert (verdict, reason) == ("yes", "2.03 is within the tolerance 2 ± 2.0 % around the base base")
    assert quality(gate, with_metric(value=2.05, base=2.0, base_band=around))[0] == "no"


def test_a_dirty_tree_is_not_reproducible():
    dirty = replace(record(), commit=replace(record().commit, patch="blobs/sha256/x"))
    assert verdicts(GateTable(), dirty)["reproducible"][0] == "no"
    assert verdicts(GateTable(reproducible=False), dirty)["reproducible"][0] == "unknown"
    assert verdicts(GateTable(), record())["reproducible"][0] == "unknown"


@pytest.mark.parametrize(
    ("values", "verdict"), [([1.0] * 6, "yes"), ([1, 2, 2, 1, 2, 2], "yes"), ([1, 2, 2, 2, 1, 1], "no")]
)
def test_a_training_loss_is_judged_over_its_whole_course(values, verdict):
    points = tuple(CurvePoint(step=10 * n, value=float(v), low=0.9, high=1.1) for n, v in enumerate(values, start=1))
    of = replace(record(), curve=Curve(points=points), metrics={"loss": Metric(value=float(values[-1]))})
    table = GateTable(quality=(QualityGate(metric="loss", better="lower"),))
    found = verdicts(table, of)["quality:loss"]
    assert found[0] == verdict
    assert verdict == "yes" or "from step 20" in found[1]


@pytest.mark.parametrize(("end", "verdict"), [(100, "unknown"), (30, "yes")])
def test_a_curve_that_ends_before_the_one_of_the_base_is_not_judged_as_a_whole_one(end, verdict):
    points = tuple(CurvePoint(step=10 * n, value=1.0, low=0.9, high=1.1) for n in (1, 2, 3))
    of = replace(record(), curve=Curve(points=points), metrics={"loss": Metric(value=1.0)})
    table = GateTable(quality=(QualityGate(metric="loss", better="lower"),))
    (found,) = (each for each in judge(table, of, base_data=None, base_end=end) if each.name == "quality:loss")
    assert found.verdict == verdict
    assert verdict == "yes" or "ends at step 30, that of the base at 100" in found.reason


def test_a_name_that_is_not_a_keyword_is_reported_all_the_same():
    gate = replace(LOWER, metric="val/loss")
    reason = verdicts(GateTable(quality=(gate,)), record())["quality:val/loss"][1]
    assert "program.report(**{'val/loss': ...})" in reason
