"""Programs that do not report what a gate or the curve needs, and how gates judge those that do."""

import json

import pytest
from tests.line import repositories

from gangline.errors import ConfigError, GateError, IntegrityError
from gangline.report.facts import unreported, verdict_text
from gangline.report.run.html import render_html
from gangline.report.run.markdown import render_markdown
from gangline.report.run.terminal import page
from gangline.spec.run_flags import stage

pytestmark = pytest.mark.long

GATE = '[[gate.quality]]\nmetric = "{metric}"\nbetter = "higher"\n'
SILENT = "print('trained')\n"


def program(*, wild: dict[str, str] | None = None, **metrics: float) -> str:
    job = {"seed": 1, "step": 4, "metrics": metrics, "not_finite": wild or {}}
    result = json.dumps({"role": "train", "final_step": 4, "jobs": [job]})
    return f"{repositories.PROGRAM}    (out / 'result.json').write_text({result!r})\n"


def commit(workspace, text: str, *tables: str) -> None:
    repositories.commit(workspace.repo, {"answer.py": text, "line.toml": repositories.LINE + "".join(tables)})


def test_a_gate_on_a_metric_that_no_one_reports_refuses_the_run(workspace):
    commit(workspace, program(accuracy=0.9), GATE.format(metric="acuracy"))
    with pytest.raises(GateError, match=r"acuracy was not reported; reported: accuracy, loss, .*mean accuracy\?"):
        workspace.run()
    (record,) = workspace.records()
    assert (record.run.verdict, stage(record, "gate").state) == ("refused", "failed")
    assert "program.report(acuracy=...)" in record.run.reason


def test_a_metric_that_is_not_a_finite_number_is_refused_as_what_it_is(workspace):
    commit(workspace, program(wild={"accuracy": "nan"}), GATE.format(metric="accuracy"))
    with pytest.raises(GateError, match="quality:accuracy: accuracy is nan, which is not finite"):
        workspace.run()
    commit(workspace, program(wild={"accuracy": "many"}), GATE.format(metric="accuracy"))
    with pytest.raises(IntegrityError, match="wanted nan, inf or -inf as numbers that are not finite, found 'many'"):
        workspace.run()


def test_a_program_that_reports_nothing_passes_no_gate_and_is_shown_how_to_report(workspace):
    commit(workspace, SILENT, GATE.format(metric="accuracy"))
    with pytest.raises(GateError, match="accuracy was not reported; reported: nothing; to report it, from gangline"):
        workspace.run()
    (said,) = unreported(workspace.records()[0])
    assert "exit 0, which is all that is known of it, and reported no loss for the curve and no accuracy, which" in said
    assert "program.step(loss=...)" in said
    assert "program.report(accuracy=...)" in said


def test_a_program_that_reports_by_a_file_is_not_asked_for_a_curve(workspace):
    """Also where no gate judges, as in the trainings of a bisection."""
    line = repositories.LINE.replace('"answer.py"]', '"answer.py"]\nmetrics = "metrics.json"')
    text = "import json\njson.dump({'loss': 1.5}, open('metrics.json', 'w'))\n"
    repositories.commit(workspace.repo, {"answer.py": text, "line.toml": line})
    assert unreported(workspace.run()) == []


def test_a_program_that_swallows_its_exception_passes_with_a_note_of_it(workspace):
    caught = "import traceback\ntry:\n    raise ValueError('no data')\nexcept ValueError:\n    traceback.print_exc()\n"
    said = "the program ended with exit 0, but the log of rank 0 ends with a traceback: ValueError: no data"
    commit(workspace, caught)
    assert workspace.run().run.verdict == "passed"
    assert said in workspace.seen.notes
    assert said in [event.text for event in workspace.records()[0].events]
    commit(workspace, caught + "print('another way worked', flush=True)\n")
    workspace.run()
    assert not any("traceback" in note for note in workspace.seen.notes)


def test_a_first_run_has_nothing_to_compare_with_and_passes_saying_so(workspace):
    commit(workspace, program(accuracy=0.9), GATE.format(metric="accuracy"))
    record = workspace.run()
    assert record.run.verdict == "passed"
    assert verdict_text(record) == "passed, 2 gates could not judge"
    assert record.run.reason.startswith(
        "no gate said no; not judged: reproducible, not pinned: environment: not locked"
    )
    assert record.run.reason.endswith("quality:accuracy, no base yet: this run becomes the base")
    assert unreported(record) == []


def test_a_silent_program_passes_where_no_gate_asks_and_every_report_says_it_was_silent(workspace):
    commit(workspace, SILENT)
    record = workspace.run()
    (said,) = unreported(record)
    assert record.run.verdict == "passed"
    assert "no loss for the curve" in said
    assert "which a gate judges" not in said
    for text in (page(record), render_markdown(record), render_html(record)):
        assert "unreported" in text
        assert "exit 0" in text


def test_what_a_taken_training_did_not_report_is_said_again(workspace):
    commit(workspace, SILENT)
    workspace.run()
    repositories.commit(workspace.repo, {"README.md": "words"})
    record = workspace.run()
    assert stage(record, "train").state == "taken"
    assert len(unreported(record)) == 1


def test_a_tolerance_judges_a_program_on_its_base(workspace):
    table = GATE.format(metric="accuracy") + "tolerance_percent = 2\n"
    commit(workspace, program(accuracy=0.9), table)
    workspace.run()
    commit(workspace, program(accuracy=0.89), table)
    assert [gate.verdict for gate in workspace.run().gates if gate.name == "quality:accuracy"] == ["yes"]
    commit(workspace, program(accuracy=0.8), table)
    with pytest.raises(GateError, match=r"0\.8 is outside the tolerance 0\.89 ± 2\.0 % around the base"):
        workspace.run()


def test_a_commit_that_loosens_its_gate_or_drops_it_passes_and_that_is_said(workspace):
    table = GATE.format(metric="accuracy") + "tolerance_percent = 2\n"
    commit(workspace, program(accuracy=0.9), table)
    workspace.run()
    commit(workspace, program(accuracy=0.6), table.replace("= 2", "= 60"))
    (gate,) = (each for each in workspace.run().gates if each.name == "quality:accuracy")
    assert gate.verdict == "yes"
    assert gate.reason.endswith("; since the base: tolerance_percent 2.0 -> 60.0")
    commit(workspace, program(accuracy=0.1))
    (gate,) = (each for each in workspace.run().gates if each.name == "quality:accuracy")
    assert gate.verdict == "unknown"
    assert gate.reason == "the base's line judges it, this one does not: 0.1, base 0.6"


def test_a_loss_is_held_against_the_base_though_training_measured_it(workspace):
    table = '[[gate.quality]]\nmetric = "loss"\nbetter = "lower"\n'
    commit(workspace, program(), table)
    workspace.run()
    commit(workspace, program() + "# again\n", table)
    (gate,) = (gate for gate in workspace.run().gates if gate.name == "quality:loss")
    assert gate.verdict == "unknown"
    assert gate.reason == (
        "the base has no band, only 1; evaluate.seeds = 3 learns one, if the program reads its seed (GANGLINE_SEED);"
        " tolerance_percent or limit judges without one"
    )


def test_a_wanted_metric_that_a_program_does_not_report_is_refused(workspace):
    commit(workspace, SILENT, '[evaluate]\nmetrics = ["accuracy"]\n')
    with pytest.raises(ConfigError, match=r"evaluate\.metrics: accuracy was not reported; reported: nothing"):
        workspace.run()


def test_a_tolerance_is_of_one_run_and_handed_on_to_none(workspace):
    table = GATE.format(metric="accuracy")
    commit(workspace, program(accuracy=0.9), table + "tolerance_percent = 2\n")
    workspace.run()
    commit(workspace, program(accuracy=0.89), table + "tolerance_percent = 2\n")
    assert workspace.run().metrics["accuracy"].base_band.n == 1
    commit(workspace, program(accuracy=0.5), table)
    record = workspace.run()
    assert (record.metrics["accuracy"].base, record.metrics["accuracy"].base_band) == (0.89, None)
    assert verdict_text(record) == "passed, 2 gates could not judge"
