"""A plain script that writes files: collected, judged, listed, fetched; and what becomes of nonsense."""

import json
from dataclasses import replace

import pytest
from tests.line import repositories

from gangline.errors import ConfigError, GateError, IntegrityError
from gangline.line.run.sweep import sweep
from gangline.registry.run_artifacts import fetch_artifacts, list_artifacts, select_artifacts
from gangline.report.facts import unreported
from gangline.report.run.html import render_html
from gangline.report.run.markdown import render_markdown
from gangline.report.run.terminal import page
from gangline.spec.run_flags import stage

GATE = '[[gate.quality]]\nmetric = "eval.loss"\nbetter = "lower"\ntolerance_percent = 5\n'
SCRIPT = """\
import json, os, pathlib
pathlib.Path("out").mkdir(exist_ok=True)
pathlib.Path("out/model.pt").write_bytes(b"weights of {loss}")
pathlib.Path("metrics.json").write_text('{{"eval": {{"loss": {loss}}}}}')
"""


def commit(workspace, script, *, keys='outputs = ["out/**"]\nmetrics = "metrics.json"\n', tables="", **files):
    line = repositories.LINE.replace("[train]", f"{keys}[train]", 1) + tables
    repositories.commit(workspace.repo, {"answer.py": script, "line.toml": line, **files})


def test_outputs_and_metrics_of_a_plain_script_are_in_record_gate_and_reports(workspace, tmp_path):
    commit(workspace, SCRIPT.format(loss=2.5), tables=GATE)
    record = workspace.run()
    assert record.run.verdict == "passed"
    assert record.metrics["eval.loss"].value == 2.5
    assert unreported(record) == [], "the gate judges what the file has"
    assert (record.outputs.num_files, record.outputs.files[0].path) == (1, "out/model.pt")
    assert [gate.verdict for gate in record.gates if gate.name == "outputs"] == ["yes"]
    for text in (page(record), render_markdown(record), render_html(record)):
        assert "out/model.pt" in text
    (found,) = select_artifacts(list_artifacts(workspace.store, record), "out/*")
    ((_, path),) = fetch_artifacts(workspace.store, [found], tmp_path / "to", overwrite=False)
    assert path.read_bytes() == b"weights of 2.5"


def test_a_worse_commit_is_refused_by_the_file_and_an_equal_one_takes_its_outputs_over(workspace):
    commit(workspace, SCRIPT.format(loss=2.5), tables=GATE)
    first = workspace.run()
    repositories.commit(workspace.repo, {"README.md": "words"})
    taken = workspace.run()
    assert stage(taken, "train").state == "taken"
    assert taken.outputs == first.outputs
    assert unreported(taken) == []
    commit(workspace, SCRIPT.format(loss=2.8), tables=GATE)
    with pytest.raises(GateError, match=r"quality:eval.loss: 2.8 is outside the tolerance"):
        workspace.run()


@pytest.mark.parametrize(
    ("written", "said"),
    [("no json", "wanted JSON"), ('{"a": 1, "a": 2}', "each name once"), ("[]", "wanted a table")],
)
def test_a_metrics_file_that_is_none_fails_the_run_with_exit_10_and_leaves_no_metric(workspace, written, said):
    commit(workspace, f"open('metrics.json', 'w').write({written!r})\n", keys='metrics = "metrics.json"\n')
    with pytest.raises(ConfigError, match=f"project.metrics: metrics.json: .*{said}"):
        workspace.run()
    (record,) = workspace.records()
    assert (record.run.verdict, record.run.exit_code) == ("failed", 10)
    assert stage(record, "train").outputs["metrics"] == {}
    assert record.metrics.keys() <= {"step_seconds", "memory_peak_bytes"}


def test_a_metrics_file_of_the_commit_that_the_program_did_not_write_is_not_a_measurement(workspace):
    commit(workspace, "print('trained')\n", keys='metrics = "metrics.json"\n', **{"metrics.json": '{"accuracy": 1}'})
    with pytest.raises(ConfigError, match="the program wrote no such file"):
        workspace.run()


APPENDS = "with open('metrics.csv', 'a') as file: file.write({row!r})\n"


@pytest.mark.parametrize("held", ["step,loss\n1,0.5\n2,0.25\n", "step,loss\r\n1,0.5\r\n2,0.25"])
def test_rows_that_the_commit_holds_are_no_measurement_of_a_program_that_appends(workspace, held):
    row = "\n1,3.5\n" if not held.endswith("\n") else "1,3.5\n"
    commit(workspace, APPENDS.format(row=row), keys='metrics = "metrics.csv"\n', **{"metrics.csv": held})
    record = workspace.run()
    assert record.metrics["loss"].value == 3.5
    assert [(point.step, point.value) for point in record.curve.points] == [(1, 3.5)]
    said = "metrics.csv: rows of the commit are left out, the rows after them count"
    assert said in [event.text for event in record.events]


def test_a_program_that_appends_no_row_measured_nothing(workspace):
    held = {"metrics.csv": "step,loss\n1,0.5\n"}
    commit(workspace, APPENDS.format(row="\n"), keys='metrics = "metrics.csv"\n', **held)
    with pytest.raises(ConfigError, match="wanted at least one number, found none"):
        workspace.run()


def test_a_metric_that_is_nan_is_refused_by_the_gate_that_asks_for_it(workspace):
    commit(workspace, SCRIPT.format(loss="NaN"), tables=GATE)
    with pytest.raises(GateError, match=r"eval.loss is nan, which is not finite"):
        workspace.run()


def test_a_csv_with_steps_gives_the_curve(workspace):
    rows = "step,loss\n" + "".join(f"{n},{4 - n / 10}\n" for n in range(1, 11))
    commit(workspace, f"open('metrics.csv', 'w').write({rows!r})\n", keys='metrics = "metrics.csv"\n')
    record = workspace.run()
    assert record.metrics["loss"].value == 3.0
    assert [point.value for point in record.curve.points][-1] == pytest.approx(3.0, abs=0.2)
    assert len(record.curve.points) > 2


def test_two_ways_that_say_different_numbers_are_named(workspace):
    job = {"seed": 1, "step": 4, "metrics": {"eval.loss": 1.0}}
    result = json.dumps({"role": "train", "final_step": 4, "jobs": [job]})
    script = f"{repositories.PROGRAM}    (out / 'result.json').write_text({result!r})\n" + SCRIPT.format(loss=2.5)
    commit(workspace, script)
    with pytest.raises(ConfigError, match=r"wanted one value of eval.loss, found 1.0 by program.report and 2.5"):
        workspace.run()


def test_outputs_over_the_limit_refuse_the_run_and_nothing_of_them_is_kept(workspace):
    workspace.site = replace(workspace.site, limits=replace(workspace.site.limits, output_bytes=1e9))
    huge = "import os; os.makedirs('out'); open('out/huge.pt', 'wb').truncate(50 * 10**9)\n"
    commit(workspace, huge, keys='outputs = ["out/**"]\n')
    with pytest.raises(
        GateError, match=r"outputs: wanted at most 10,000 files of 1.0 GB.*found 1 of 50 GB.*out/huge.pt"
    ):
        workspace.run()
    (record,) = workspace.records()
    assert (record.run.verdict, record.outputs.num_files) == ("refused", 0)
    assert list(workspace.store.list(f"{record.gang_prefix}/outputs/")) == []


def test_a_program_that_writes_none_of_its_outputs_is_refused(workspace):
    commit(workspace, "print('trained')\n", keys='outputs = ["out/**", "*.pt"]\n')
    with pytest.raises(GateError, match=r"wrote nothing that out/\*\*, \*.pt names"):
        workspace.run()


def test_outputs_of_a_program_that_failed_are_kept_all_the_same(workspace):
    commit(workspace, SCRIPT.format(loss=1) + "raise SystemExit(3)\n", keys='outputs = ["out/**"]\n')
    with pytest.raises(Exception, match=r"rank 0"):
        workspace.run()
    (record,) = workspace.records()
    assert record.outputs.files[0].path == "out/model.pt"


def test_a_list_that_was_changed_after_the_run_is_not_read(workspace):
    commit(workspace, SCRIPT.format(loss=2.5))
    record = workspace.run()
    workspace.store.put(f"{record.gang_prefix}/outputs.json", b'{"gang":"other"}')
    with pytest.raises(IntegrityError, match=r"outputs.json: wanted digest"):
        list_artifacts(workspace.store, record)


def test_a_sweep_names_files_that_no_one_collected_and_deletes_them_only_when_asked(workspace):
    commit(workspace, SCRIPT.format(loss=2.5), keys="")
    record = workspace.run()
    (stays,) = sweep(workspace.repo, **workspace.where)
    assert (stays.life, stays.deleted, stays.uncollected_files) == ("ended", False, 2)
    assert stays.uncollected_bytes == len("weights of 2.5") + len('{"eval": {"loss": 2.5}}')
    kept = workspace.repo / ".gangline/gangs" / record.gang.name
    assert list(kept.rglob("model.pt"))
    (gone,) = sweep(workspace.repo, **workspace.where, with_outputs=True)
    assert gone.deleted
    assert not kept.exists()


def test_a_sweep_deletes_what_was_collected(workspace):
    commit(workspace, SCRIPT.format(loss=2.5))
    workspace.run()
    (gone,) = sweep(workspace.repo, **workspace.where)
    assert (gone.deleted, gone.uncollected_files) == (True, 0)


def test_what_was_too_large_to_collect_is_not_swept(workspace):
    workspace.site = replace(workspace.site, limits=replace(workspace.site.limits, output_bytes=10))
    commit(workspace, SCRIPT.format(loss=2.5), keys='outputs = ["out/**"]\n')
    with pytest.raises(GateError, match="outputs: wanted at most"):
        workspace.run()
    (stays,) = sweep(workspace.repo, **workspace.where)
    assert (stays.deleted, stays.uncollected_files) == (False, 2)


def test_a_band_is_learned_from_the_metrics_files_of_further_seeds(workspace):
    script = SCRIPT.replace("{loss}}}}}", "' + str(2.5 + int(os.environ['GANGLINE_SEED']) / 100) + '}}}}").format(
        loss=0
    )
    commit(
        workspace, script, tables='[evaluate]\nseeds = 3\n[[gate.quality]]\nmetric = "eval.loss"\nbetter = "lower"\n'
    )
    record = workspace.run()
    assert record.metrics["eval.loss"].seeds == {"1": 2.51, "2": 2.52, "3": 2.53}
    assert record.metrics["eval.loss"].band.n == 3
