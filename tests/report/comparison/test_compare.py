"""Two records: the outcome follows the bands, and what changed is named."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.report import records

from gangline.line.results.loss_curve import thin
from gangline.line.stages.evaluate import compared_with_base
from gangline.report.comparison.compare import compare
from gangline.report.comparison.pages import render_html_comparison, render_markdown_comparison
from gangline.report.comparison.text import render_comparison
from gangline.report.comparison.types import ComparisonContext, FileChange
from gangline.spec.config.line import Line, ProjectTable, TrainTable
from gangline.spec.measurements import Curve, CurvePoint, Metric
from gangline.spec.program_files import RuntimeReport, UndeclaredRead
from gangline.spec.record import Base, Gate, StageInfo
from gangline.spec.run_flags import NOT_FINITE

BASE = records.passed()
TRAIN = TrainTable(steps=4, global_batch=2)


def with_loss(value, better="lower"):
    metric = replace(BASE.metrics["eval_loss"], value=value, better=better, band=None)
    return replace(BASE, run=replace(BASE.run, id=records.THIS_RUN), metrics={"eval_loss": metric})


@given(value=st.floats(0.1, 10), better=st.sampled_from(["lower", "higher"]))
def test_outcome_is_the_side_of_the_band(value, better):
    band = BASE.metrics["eval_loss"].band
    inside = band.low <= value <= band.high
    good = value < band.low if better == "lower" else value > band.high
    outcome = compare(BASE, with_loss(value, better)).outcome
    assert outcome == ("SAME" if inside else "BETTER" if good else "WORSE")


@pytest.mark.parametrize(("n", "word"), [(1, "tolerance"), (3, "band")])
@pytest.mark.parametrize(("value", "said"), [(9.0, "outside"), (0.1, "outside"), (2.369, "within")])
def test_what_a_gate_tolerates_is_called_tolerance_and_what_seeds_taught_is_a_band(n, word, value, said):
    metric = BASE.metrics["eval_loss"]
    this = with_loss(value)
    judged = replace(this.metrics["eval_loss"], base_band=replace(metric.band, n=n, origin=BASE.run.id))
    base = replace(BASE, metrics={"eval_loss": replace(metric, band=None)})
    comparison = compare(base, replace(this, metrics={"eval_loss": judged}))
    assert comparison.why == f"eval_loss {said} the {word}"
    assert f"| {word} |" in render_markdown_comparison(comparison)
    assert f'<th class="num">{word}</th>' in render_html_comparison(comparison)
    row = next(line for line in render_comparison(comparison).splitlines() if "eval_loss  " in line)
    assert row.endswith(f"within the {word}") == (said == "within")


@pytest.mark.parametrize(("value", "outcome", "where"), [(9.0, "WORSE", "outside"), (2.369, "SAME", "within")])
def test_the_band_that_a_base_of_one_seed_was_judged_by_judges_here_as_in_gates(value, outcome, where):
    metric = BASE.metrics["eval_loss"]
    older = replace(metric.band, origin="bytegpt-older", n=3)
    base = replace(BASE, metrics={"eval_loss": replace(metric, band=None, base_band=older)})
    this = with_loss(value)
    comparison = compare(base, this)
    assert comparison.outcome == outcome
    assert comparison.why == f"eval_loss {where} the band of bytegpt-older, which the base was judged by"
    given = SimpleNamespace(base=base, line=Line(project=ProjectTable(name="x", task="m:X"), train=TRAIN))
    judged = compared_with_base(given, "eval_loss", this.metrics["eval_loss"])
    assert judged.base_band == comparison.metrics[0].band, "as gates do"
    tolerance = replace(base, metrics={"eval_loss": replace(metric, band=None, base_band=replace(older, n=1))})
    assert compare(tolerance, with_loss(9.0)).outcome == "NOT COMPARABLE"


def test_a_run_against_itself_is_the_same_and_nothing_changed():
    comparison = compare(BASE, BASE)
    assert comparison.outcome == "SAME"
    assert comparison.changes == ()
    assert "nothing changed" in render_comparison(comparison)


def test_a_key_that_lines_had_not_yet_is_not_a_change_where_it_is_not_set():
    values = {**BASE.inputs.values, "project.outputs": [], "publish.files": []}
    newer = replace(BASE, inputs=replace(BASE.inputs, values=values))
    assert compare(BASE, newer).changes == ()
    values["project.outputs"] = ["out/**"]
    assert [change.name for change in compare(BASE, newer).changes] == ["project.outputs"]


def test_the_one_change_is_named_with_both_values():
    comparison = compare(BASE, records.refused())
    assert comparison.outcome == "WORSE"
    text = render_comparison(comparison)
    assert "one change: line.toml model.width 128 -> 64" in text
    row = next(line for line in text.splitlines() if "eval_loss  " in line and "2.52" in line)
    assert row.split("  ")[0] == "✗ eval_loss"
    assert "2.369 ± 1.6 %" in row
    assert row.endswith("worse")
    assert f"they part at step {comparison.outside_from}" in text


def test_the_curve_is_judged_only_on_the_band_of_this_base():
    other = replace(
        records.refused(), commit=replace(records.refused().commit, base=Base(commit="0" * 40, run="other"))
    )
    assert compare(BASE, other).outside_from is None


def test_the_band_of_any_base_judges_the_curve_once_its_seeds_are_known():
    this = replace(records.refused(), commit=replace(records.refused().commit, base=None))
    points = BASE.curve.points
    bands = {point.step: (point.value * 0.99, point.value * 1.01) for point in points}
    curves = compare(BASE, this, ComparisonContext(bands=bands)).curves
    outside = [p.step for p, q in zip(points, this.curve.points, strict=True) if abs(q.value / p.value - 1) > 0.01]
    assert curves.apart_from == outside[0]
    assert curves.low[-1] < curves.base[-1] < curves.high[-1]


def with_course(steps, *, places=64, slope=1.0):
    """A run whose loss at step s is 10 - slope s, as the line thins it; only its first `places`."""
    course = thin({step: 10 - slope * step for step in range(1, steps + 1)}, steps)[:places]
    return replace(BASE, curve=Curve(points=tuple(CurvePoint(step=step, value=value) for step, value in course)))


def test_courses_of_other_lengths_are_compared_at_the_steps_of_the_wider_shares():
    short, long = with_course(100, slope=0.01), with_course(1000, slope=0.01)
    curves = compare(short, long).curves
    assert curves.steps == tuple(point.step for point in long.curve.points if point.step <= 100)
    assert curves.steps[0] == 15
    assert curves.base == pytest.approx(curves.this, abs=0.01), "one course by two means: not off by half a share"
    assert not curves.equal
    back = compare(long, short).curves
    assert (back.steps, back.base, back.this) == (curves.steps, curves.this, curves.base)


def test_course_that_broke_off_is_compared_point_by_point():
    curves = compare(with_course(1000), with_course(1000, places=20)).curves
    assert len(curves.steps) == 20
    assert curves.equal


def test_band_of_a_course_thinned_again_is_that_of_its_shares():
    base, this = with_course(100, slope=0.01), with_course(1000, slope=0.02)
    bands = {point.step: (point.value * 0.99, point.value * 1.01) for point in base.curve.points}
    curves = compare(base, this, ComparisonContext(bands=bands)).curves
    assert curves.low == pytest.approx([value * 0.99 for value in curves.base])
    outside = [step for step, one, low in zip(curves.steps, curves.this, curves.low, strict=True) if one < low]
    assert curves.apart_from == outside[0]


def test_a_worse_run_leads_to_the_bisection_between_both_commits():
    said = compare(BASE, records.refused()).next_command
    assert said == f"gangline bisect eval_loss --good {BASE.commit.sha[:8]} --bad {records.THIS_SHA[:8]}"


@pytest.mark.parametrize("width", [72, 80, 120])
@pytest.mark.parametrize(
    "this", [records.refused(), records.passed(), records.failed(), records.bare(), records.large()]
)
def test_no_line_is_wider_than_the_terminal(this, width):
    more = ComparisonContext(
        files=(FileChange(path="deep/" * 40 + "x.py", added=3, removed=1), FileChange(path="a.bin"))
    )
    lines = render_comparison(compare(BASE, this, more), width=width).splitlines()
    assert max(map(len, lines)) <= width


def test_measurements_that_are_costs_are_not_reported_twice_and_what_is_judged_comes_first():
    def with_measurements(record):
        reported = {"a_metric": Metric(value=1.0), "step_seconds": Metric(value=0.1, unit="s")}
        return replace(record, metrics=record.metrics | reported)

    comparison = compare(with_measurements(BASE), with_measurements(with_loss(2.37)))
    assert [number.name for number in comparison.metrics] == ["eval_loss", "a_metric", "step_seconds"]
    changed = with_measurements(with_loss(2.37))
    metrics = {name: replace(each, value=each.value * 1.01) for name, each in changed.metrics.items()}
    comparison = compare(with_measurements(BASE), replace(changed, metrics=metrics))
    assert [number.name for number in comparison.metrics] == ["eval_loss", "a_metric"]


def test_files_are_counted_and_the_most_changed_come_first():
    files = (FileChange(path="a.py", added=1, removed=0), FileChange(path="b.py", added=20, removed=4))
    text = render_comparison(compare(BASE, records.refused(), ComparisonContext(files=files)))
    assert "2 files, +21 -4:\n- b.py  +20 -4\n- a.py  +1 -0" in text


def test_packages_of_bills_are_compared_with_their_versions():
    more = ComparisonContext(base_packages={"numpy": "1.0", "x": "1"}, this_packages={"numpy": "2.0", "x": "1"})
    changes = compare(BASE, records.refused(), more).changes
    assert [(c.name, c.base, c.this) for c in changes if c.kind == "package"] == [("numpy", "1.0", "2.0")]


@pytest.mark.parametrize("render", [render_markdown_comparison, render_html_comparison])
def test_text_of_strangers_stays_text(render):
    hostile = "<script>alert(1)</script> @everyone `x`"
    refused = records.refused()
    this = replace(refused, commit=replace(refused.commit, subject=hostile))
    text = render(compare(BASE, this, ComparisonContext(files=(FileChange(path=hostile, added=1, removed=1),))))
    assert "<script" not in text
    assert "alert(1)" in text


@pytest.mark.parametrize(
    ("this", "why"),
    [
        (records.failed(), "no metrics"),
        (replace(with_loss(2.0), inputs=replace(BASE.inputs, data="d" * 64)), "the data differ"),
        (replace(with_loss(2.0), run=replace(BASE.run, project="other")), "two projects"),
        (replace(with_loss(2.0), metrics={"accuracy": BASE.metrics["eval_loss"]}), "no metric in common"),
    ],
)
def test_what_cannot_be_compared_says_why(this, why):
    comparison = compare(BASE, this)
    assert comparison.outcome == "NOT COMPARABLE"
    assert why in comparison.why


def test_without_a_band_nothing_is_claimed_and_the_way_to_one_is_named():
    bandless = replace(BASE, metrics={"eval_loss": replace(BASE.metrics["eval_loss"], band=None)})
    comparison = compare(bandless, with_loss(2.0))
    assert comparison.outcome == "NOT COMPARABLE"
    assert "evaluate.seeds = 3" in comparison.next_command


def test_a_program_learns_of_seeds_and_of_a_tolerance_where_it_reads_none():
    metric = replace(BASE.metrics["eval_loss"], band=None)
    values = {**BASE.inputs.values, "project.command": ["python", "train.py"]}
    bandless = replace(BASE, metrics={"eval_loss": metric}, inputs=replace(BASE.inputs, values=values))
    this = with_loss(2.0)
    comparison = compare(bandless, replace(this, inputs=bandless.inputs))
    assert comparison.outcome == "NOT COMPARABLE"
    assert "evaluate.seeds = 3 where the program reads its seed, else tolerance_percent" in comparison.next_command


@pytest.mark.parametrize(
    ("percent", "outcome"),
    [(5, "WORSE"), (50, "SAME"), (None, "NOT COMPARABLE"), (math.nan, "NOT COMPARABLE"), (-1, "NOT COMPARABLE"),
     (10**400, "NOT COMPARABLE"), ("5", "NOT COMPARABLE")],
)  # fmt: skip
def test_what_the_line_of_the_base_tolerates_judges_where_nothing_learned_a_band(percent, outcome):
    metric = BASE.metrics["eval_loss"]
    gates = [{"metric": "loss", "tolerance_percent": 99}, {"metric": "eval_loss", "tolerance_percent": percent}]
    inputs = replace(BASE.inputs, values={**BASE.inputs.values, "gate.quality": gates})
    base = replace(BASE, metrics={"eval_loss": replace(metric, band=None)}, inputs=inputs)
    this = with_loss(1.2 * metric.value)
    this = replace(this, metrics={"eval_loss": replace(this.metrics["eval_loss"], band=None, base_band=None)})
    assert compare(base, this).outcome == outcome


def test_a_judged_metric_without_counterpart_is_named_and_not_comparable():
    gate = Gate(name="quality:accuracy", verdict="yes", reason="0.9, wanted at least 0.8")
    metrics = {"eval_loss": BASE.metrics["eval_loss"], "accuracy": Metric(value=0.9, better="higher")}
    more = replace(BASE, metrics=metrics, gates=(*BASE.gates, gate))
    comparison = compare(more, with_loss(2.37))
    assert (comparison.outcome, comparison.only_base) == ("NOT COMPARABLE", ("accuracy",))
    assert comparison.why == f"accuracy of the base has no counterpart in {comparison.this}"
    for text in (render_comparison(comparison), render_markdown_comparison(comparison)):
        assert "only in base: accuracy" in text
    assert comparison.next_command == "report accuracy, too, in one commit: its run has both names"
    assert compare(more, with_loss(3.0)).outcome == "WORSE"


@pytest.mark.parametrize(("own", "gate", "outcome"), [(50, 3, "WORSE"), (3, 50, "WORSE"), (50, 50, "SAME")])
def test_the_narrowest_of_band_and_tolerances_judges_so_that_no_gate_is_contradicted_or_loosened(own, gate, outcome):
    metric = BASE.metrics["eval_loss"]
    half = metric.value * own / 100
    base = replace(BASE, metrics={"eval_loss": replace(metric, band=replace(metric.band, half=half))})
    tolerance = replace(metric.band, half=metric.value * gate / 100, n=1, origin=BASE.run.id)
    this = with_loss(1.2 * metric.value)
    this = replace(this, metrics={"eval_loss": replace(this.metrics["eval_loss"], base_band=tolerance)})
    assert compare(base, this).outcome == outcome


def on_data(record, digest, text):
    values = {**BASE.inputs.values, "data.text": text}
    return replace(record, inputs=replace(BASE.inputs, data=digest * 64, values=values))


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (["data/a"], ["data/a"], "the base on the data of today: gangline run --commit 9f31c2a0 --again"),
        (["data/a"], ["data/a", "data/b"], '--commit 9f31c2a0 --set \'data.text=["data/a", "data/b"]\''),
        (["repo:a"], ["repo:a"], "each commit has data of its own"),
    ],
)
def test_on_other_data_no_number_is_worse_and_the_way_to_the_same_is_named(before, after, words):
    comparison = compare(on_data(BASE, "c", before), on_data(with_loss(9.0), "d", after))
    assert {number.side for number in comparison.metrics} == {"unknown"}
    assert words in comparison.next_command


def test_what_no_record_has_the_content_of_may_have_changed_too():
    reported = {"name": "data", "pinned": "unknown", "by": "none declared; read 1 file"}
    gate = Gate(name="reproducible", verdict="unknown", reason="", evidence={"items": [reported]})
    before = replace(BASE, ran=RuntimeReport(reads=(UndeclaredRead(path="/d/a", size_bytes=12),)), gates=(gate,))
    same = compare(before, before)
    for text in (render_comparison(same), render_markdown_comparison(same), render_html_comparison(same)):
        assert "nothing that records have changed: same line" in text
        assert "may have changed, too: data: none declared; read 1 file" in text
    reads = (UndeclaredRead(path="/d/a", size_bytes=13), UndeclaredRead(path="/d/b", size_bytes=1))
    other = compare(before, replace(before, ran=RuntimeReport(reads=reads)))
    assert [(each.kind, each.name, each.base, each.this) for each in other.changes] == [
        ("read", "2 undeclared files, such as /d/a", "12 B", "13 B")
    ]
    assert compare(BASE, BASE).unpinned == ()


def test_a_judged_metric_that_is_not_finite_is_worse_also_where_it_was_the_only_one():
    train = StageInfo(state="done", outputs={NOT_FINITE: {"eval_loss": "nan"}})
    broken = replace(with_loss(2.37), metrics={}, stages=BASE.stages | {"train": train})
    comparison = compare(BASE, broken)
    assert (comparison.outcome, comparison.why) == ("WORSE", "eval_loss not finite")
    inputs = replace(broken.inputs, code="c" * 64)
    other = compare(BASE, replace(broken, commit=replace(broken.commit, sha="5" * 40), inputs=inputs))
    assert other.next_command == "gangline bisect eval_loss --good 9f31c2a0 --bad 55555555"
    assert compare(replace(BASE, metrics={"loss": Metric(value=1.0)}), broken).outcome == "NOT COMPARABLE"


def test_a_metric_that_is_new_or_never_judged_hinders_no_comparison():
    more = replace(BASE, metrics={**BASE.metrics, "accuracy": Metric(value=0.9)})
    assert compare(more, with_loss(2.37)).outcome == "SAME"
    judged = replace(with_loss(2.37), metrics={**with_loss(2.37).metrics, "f1": Metric(value=1.0, better="higher")})
    comparison = compare(BASE, judged)
    assert (comparison.outcome, comparison.only_this) == ("SAME", ("f1",))


def test_values_are_written_as_a_line_writes_them_and_courses_share_a_scale():
    values = {**BASE.inputs.values, "train.stop_at": 24, "gate.quality": [{"metric": "a", "better": "lower"}]}
    this = with_loss(2.37)
    points = tuple(replace(point, value=point.value * 100) for point in BASE.curve.points)
    this = replace(this, inputs=replace(BASE.inputs, values=values), curve=replace(BASE.curve, points=points))
    before = replace(BASE, inputs=replace(BASE.inputs, values={**BASE.inputs.values, "train.stop_at": None}))
    comparison = compare(before, this)
    reported = {change.name: (change.base, change.this) for change in comparison.changes}
    assert reported["train.stop_at"] == ("-", "24")
    assert reported["gate.quality a"] == ("-", "better lower")
    course = render_markdown_comparison(comparison).split("loss: base ")[-1].split(" ")[0]
    assert set(course) == {"▁"}


def test_what_differs_of_a_gate_is_named_by_its_metric():
    gates = [
        [{"metric": "a", "limit": None, "floor_percent": 0.1}],
        [{"metric": "a", "limit": 5, "floor_percent": 0.1}],
    ]
    runs = [replace(BASE, inputs=replace(BASE.inputs, values={"gate.quality": each})) for each in gates]
    (change,) = compare(*runs).changes
    assert (change.name, change.base, change.this) == ("gate.quality a.limit", "-", "5")
    (change,) = compare(
        runs[0], replace(BASE, inputs=replace(BASE.inputs, values={"gate.quality": gates[0] * 2}))
    ).changes
    assert change.name == "gate.quality"


def test_what_is_equal_without_a_band_is_called_equal():
    loss = replace(BASE.metrics["eval_loss"], band=None)
    memory = Metric(value=4e8, unit="B")
    bandless = replace(BASE, metrics={"eval_loss": loss, "memory_peak_bytes": memory})
    comparison = compare(bandless, replace(bandless, run=replace(BASE.run, id=records.THIS_RUN)))
    assert (comparison.outcome, comparison.why) == ("SAME", "eval_loss equal")


def test_equal_memory_makes_no_two_runs_the_same():
    memory = Metric(value=4e8, unit="B")
    loss = replace(BASE.metrics["eval_loss"], band=None)
    bandless = replace(BASE, metrics={"eval_loss": loss, "memory_peak_bytes": memory})
    this = with_loss(2.0)
    comparison = compare(bandless, replace(this, metrics={**this.metrics, "memory_peak_bytes": memory}))
    assert comparison.outcome == "NOT COMPARABLE"
    assert "evaluate.seeds = 3" in comparison.next_command


def test_versions_that_were_imported_come_before_what_locks_say():
    more = ComparisonContext(base_packages={"numpy": "1.26.4"}, this_packages={"numpy": "1.26.4"})
    before, after = (replace(BASE, ran=RuntimeReport(packages={"numpy": each})) for each in ("1.26.4", "2.4.6"))
    changes = compare(before, after, more).changes
    assert [(c.name, c.base, c.this) for c in changes if c.kind == "package"] == [("numpy", "1.26.4", "2.4.6")]


def test_versions_of_ranks_are_compared_not_those_of_who_created_the_runs():
    """Both drivers have torch 2.15.0 in their own environment."""
    before, after = (
        replace(BASE, ran=RuntimeReport(python=python, packages={"torch": torch}))
        for python, torch in (("3.11.7", "2.11.0"), ("3.12.3", "2.12.0"))
    )
    changes = [(c.name, c.base, c.this) for c in compare(before, after).changes if c.kind == "package"]
    assert changes == [("python", "3.11.7", "3.12.3"), ("torch", "2.11.0", "2.12.0")]


def test_a_package_that_one_run_alone_imported_is_not_said_to_have_gone():
    """A run that failed early imports less."""
    before, after = (
        replace(BASE, ran=RuntimeReport(packages=each))
        for each in ({"skops": "0.16.0", "own": "1", "np": "1"}, {"np": "1"})
    )
    more = ComparisonContext(base_packages={"skops": "0.16.0"}, this_packages={"skops": "0.16.0"})
    changes = [(c.name, c.base, c.this) for c in compare(before, after, more).changes if c.kind == "package"]
    assert changes == [("own", "1", "not imported")]


def test_packages_code_and_plan_are_distinguished():
    this = with_loss(2.37)
    this = replace(
        this,
        inputs=replace(BASE.inputs, versions={**BASE.inputs.versions, "torch": "2.14.0"}, code="1" * 64),
        plan=replace(BASE.plan, name="fsdp-2"),
    )
    assert {change.kind for change in compare(BASE, this).changes} == {"package", "code", "plan"}


def test_other_shares_of_the_replicas_are_a_change_of_the_plan():
    this = replace(with_loss(2.37), plan=replace(BASE.plan, shares=(48, 48, 16, 16)))
    changes = [(each.name, each.base, each.this) for each in compare(BASE, this).changes if each.kind == "plan"]
    assert changes == [("samples by replica", "equal", "2 x 48, 2 x 16")]


def test_other_data_asks_for_the_base_on_the_data_of_today():
    this = replace(with_loss(2.0), inputs=replace(BASE.inputs, data="d" * 64))
    assert f"gangline run --commit {BASE.commit.sha[:8]} --again" in compare(BASE, this).next_command


H100, A100 = ("NVIDIA H100 80GB HBM3",), ("NVIDIA A100-SXM4-80GB",)


def on(gpus, planned=""):
    plan = replace(BASE.plan, device="cuda", device_name=planned)
    return replace(BASE, plan=plan, ran=RuntimeReport(gpus=gpus) if gpus else None)


@pytest.mark.parametrize(
    ("base", "this", "words"),
    [
        (on(H100, "h100"), on(A100, "h100"), [(H100[0], A100[0])]),
        (on(H100, "h100"), on(H100, "NVIDIA-H100-80GB-HBM3"), []),
        (on((), "h100"), on(A100, "h100"), []),
        (on((), "h100"), on(A100, "a100"), [("h100", "a100")]),
        (on((), "h100"), on(()), []),
        (BASE, on(H100, "h100"), [("cpu", "h100")]),
    ],
)
def test_another_kind_of_device_is_a_change_as_ranks_found_it_else_as_planned(base, this, words):
    changes = [(each.base, each.this) for each in compare(base, this).changes if each.kind == "device"]
    assert changes == words


def with_command(*words):
    return replace(BASE, inputs=replace(BASE.inputs, values={**BASE.inputs.values, "project.command": list(words)}))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (["--lr", "0.02"], ["--lr", "0.000001"], "line.toml project.command --lr 0.02 -> 0.000001"),
        (["--lr=0.02"], ["--lr=0.01"], "line.toml project.command --lr=0.02 -> --lr=0.01"),
        ([], ["--warmup", "10"], "line.toml project.command - -> --warmup 10"),
        (["--name", "a b"], [], "line.toml project.command --name 'a b' -> -"),
    ],
)
def test_of_a_long_command_the_words_that_differ_are_named(before, after, said):
    many = ["python", "train.py", "--data-dir", "/data/of/a/very/long/name", "--text", "x" * 60]
    comparison = compare(with_command(*many, *before, "--end"), with_command(*many, *after, "--end"))
    assert f"one change: {said}" in render_comparison(comparison)


def test_two_words_that_differ_are_two_changes_and_a_command_that_was_a_task_is_named_whole():
    twice = compare(with_command("a", "--lr", "1", "--seed", "2"), with_command("a", "--lr", "3", "--seed", "4"))
    assert [change.name for change in twice.changes] == ["project.command --lr", "project.command --seed"]
    task = replace(BASE, inputs=replace(BASE.inputs, values={**BASE.inputs.values, "project.command": None}))
    (change,) = compare(task, with_command("python", "a.py")).changes
    assert (change.name, change.base, change.this) == ("project.command", "-", '["python", "a.py"]')


def test_where_code_line_and_environment_are_equal_no_commit_is_searched():
    other = replace(with_loss(9.0), commit=replace(BASE.commit, sha="5" * 40))
    assert compare(BASE, other).next_command == f"gangline report {other.run.id} --open"
    for name in ("code", "line", "environment"):
        changed = replace(other, inputs=replace(other.inputs, **{name: "c" * 64}))
        assert compare(BASE, changed).next_command.startswith("gangline bisect eval_loss")


def test_times_of_a_training_that_was_taken_are_those_of_its_run():
    train = StageInfo(state="taken", taken_from=BASE.run.id)
    taken = replace(BASE, run=records.refused().run, stages=BASE.stages | {"train": train})
    comparison = compare(BASE, taken)
    assert {(number.of, number.change) for number in comparison.costs} == {(BASE.run.id, None)}
    row = next(line for line in render_comparison(comparison).splitlines() if line.strip().startswith("training"))
    assert row.endswith(f"of {BASE.run.id}")
    assert "%" not in row
    for text in (render_markdown_comparison(comparison), render_html_comparison(comparison)):
        assert f", of {BASE.run.id}" in text


def with_settings(count):
    """A run whose metrics file holds many settings beside the loss that its gate judges."""
    settings = {f"user_config.{number:02}": Metric(value=float(number)) for number in range(count)}
    gate = Gate(name="quality:eval_loss", verdict="yes", reason="")
    return replace(BASE, metrics=BASE.metrics | settings, gates=(gate,))


def test_settings_of_a_metrics_file_are_folded_and_decide_no_outcome():
    comparison = compare(with_settings(40), with_settings(40))
    assert comparison.why == "eval_loss within the band; bits_per_byte equal"
    for text in (
        render_comparison(comparison),
        render_markdown_comparison(comparison),
        render_html_comparison(comparison),
    ):
        assert "more metrics, " in text
        assert text.count("user_config.") <= 12
    bare = replace(with_settings(5), metrics={f"a.{n}": Metric(value=1.0) for n in range(5)}, gates=())
    assert compare(bare, bare).why == "a.0, a.1, a.2 and 2 more equal"
