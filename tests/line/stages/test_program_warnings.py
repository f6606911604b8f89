"""What a run says of a program that ended short of its steps, was restarted, or whose ranks differ on a metric."""

import json

import pytest
from tests.line import repositories

from gangline.errors import GateError
from gangline.line.results.rank_metrics import differing_metrics_text
from gangline.spec.measurements import BrokenSteps
from gangline.spec.run_flags import stage
from gangline.storage.folder.store import FolderStore

LINE = repositories.LINE.replace("ranks = 1", "ranks = 2")
HEAD = """\
from gangline.train import Program
with Program() as program:
    while program.step_number < {steps}:
        program.step(loss=1.0)
    rank = program.rank
"""


def commit(workspace, report, *, steps=4, **files):
    repositories.commit(
        workspace.repo, {"answer.py": f"{HEAD.format(steps=steps)}    {report}\n", "line.toml": LINE} | files
    )


def said(record):
    return [event.text for event in record.events if event.kind == "program"]


def test_ranks_that_report_different_values_are_named_and_those_of_rank_0_count(workspace):
    commit(workspace, "program.report(accuracy=0.91 - rank * 0.03, error=0.5)")
    record = workspace.run()
    assert said(record) == ["ranks reported different values of accuracy: rank 0 0.91, rank 1 0.88; rank 0's counts"]
    assert record.metrics["accuracy"].value == 0.91


def test_a_program_that_ends_before_its_last_step_is_said_to_also_by_a_run_that_takes_its_training(workspace):
    commit(workspace, "program.report(accuracy=0.91)", steps=3)
    assert said(workspace.run()) == ["the program ended after 3 of 4 steps"]
    repositories.commit(workspace.repo, {"README.md": "words"})
    record = workspace.run()
    assert stage(record, "train").state == "taken"
    assert said(record) == ["the program ended after 3 of 4 steps"]


def test_steps_beyond_those_of_the_line_are_said_and_are_in_the_curve(workspace):
    text = HEAD.format(steps=200).replace("loss=1.0", "loss=9.0 - program.step_number / 100")
    repositories.commit(workspace.repo, {"answer.py": f"{text}    program.report(accuracy=0.91)\n", "line.toml": LINE})
    record = workspace.run()
    assert said(record) == ["the program made 200 steps, and the plan has 4; train.steps sets them"]
    assert (record.curve.points[-1].step, record.metrics["loss"].step) == (200, 200)
    assert record.metrics["loss"].value == pytest.approx(7.02)
    assert "200 steps" in stage(record, "train").message


def test_a_loss_that_is_not_finite_at_the_end_is_none_that_a_gate_passes(workspace):
    gate = '[[gate.quality]]\nmetric = "loss"\nbetter = "lower"\nlimit = 5.0\n'
    text = HEAD.format(steps=4).replace("loss=1.0", 'loss=1.0 if program.step_number < 2 else float("nan")')
    repositories.commit(workspace.repo, {"answer.py": text, "line.toml": LINE + gate})
    with pytest.raises(GateError, match="loss is nan or infinite, which is not finite"):
        workspace.run()
    (record,) = workspace.records()
    assert "loss" not in record.metrics
    assert record.curve.broken == (BrokenSteps(first=3, last=4, count=2),)
    assert said(record) == ["the loss of the last step, 4, is not finite; the last finite one is that of step 2"]


SPAWNS = """\
import multiprocessing
from gangline.train import Program
def work(number):
    with Program() as program:
        for _ in range(4):
            program.step(loss=1.0)
        program.report(accuracy=0.9 - number / 10)
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    for number in range(2):
        process = context.Process(target=work, args=(number,))
        process.start()
        process.join()
"""


def test_processes_that_report_as_one_rank_are_counted(workspace):
    line = repositories.LINE.replace("[train]", "distributed = false\n[train]")
    repositories.commit(workspace.repo, {"answer.py": SPAWNS, "line.toml": line})
    record = workspace.run()
    texts = said(record)
    assert len(texts) == 1, texts
    assert texts[0].startswith(
        "2 processes reported as rank 0, by Program or Session: of a step or metric that several have"
    )
    assert record.metrics["accuracy"].value == 0.8, "the last one's"


def test_ranks_that_agree_after_all_steps_leave_nothing_to_say(workspace):
    commit(workspace, "program.report(accuracy=0.91 + rank * 1e-9, own=1.0) if rank else program.report(accuracy=0.91)")
    assert said(workspace.run()) == []


def test_a_program_that_reports_no_step_is_not_said_to_have_ended_early(workspace):
    commit(workspace, "program.report(accuracy=0.91)", steps=0)
    assert said(workspace.run()) == []


def test_a_command_that_starts_its_training_in_the_background_is_said_to_have_left_it(workspace):
    line = repositories.LINE.replace('"python", "answer.py"', '"bash", "train.sh"').replace("ranks = 2", "ranks = 1")
    repositories.commit(workspace.repo, {"train.sh": "sleep 600 &\nexit 0\n", "line.toml": line})
    left = "1 process of the program was still running when it exited with 0, and was stopped: sleep 600"
    assert said(workspace.run()) == [left]
    repositories.commit(workspace.repo, {"README.md": "words"})
    assert said(workspace.run()) == [left], "also where the training is taken"


WRITES = """\
import json, os, pathlib, time
rank = int(os.environ["RANK"])
time.sleep(0.2 * rank)
if {condition}:
    pathlib.Path("new.json").write_text(json.dumps({{"accuracy": 0.9 - rank / 10}}))
    os.replace("new.json", "out/../metrics.json")
"""


WRITERS = "metrics.json was written by 2 ranks (0, 1): it has the numbers of the last one; write it on rank 0 alone"


@pytest.mark.parametrize(
    ("condition", "texts"),
    [
        ("True", [WRITERS]),
        ("rank == 0", []),
    ],
)
def test_a_metrics_file_that_several_ranks_write_is_said_to_have_the_numbers_of_the_last(workspace, condition, texts):
    files = {"answer.py": WRITES.format(condition=condition), "out/.keep": ""}
    line = LINE.replace('"answer.py"]', '"answer.py"]\nmetrics = "metrics.json"')
    assert "metrics" in line
    repositories.commit(workspace.repo, {"line.toml": line} | files)
    assert said(workspace.run()) == texts


EARLY = "the program ended after 4 of 8 steps"
RESTARTED = """\
import os, pathlib, signal
from gangline.train import Program
again = int(os.environ["GANGLINE_GENERATION"]) > 0
with Program() as program:
    program.resume()
    while program.step_number < ({second} if again else 6):
        program.step(loss=1.0 if again else 9.0)
        if {saves} and program.step_number == 2:
            program.save({{"weights": b"w"}})
    if not again:
        program._metrics and program._metrics.flush()
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("saves", "second", "losses", "reported"),
    [
        (False, 4, [1.0] * 4, [f"{EARLY}, counted from its last restart, as it did not resume by program.resume"]),
        (True, 4, [9.0] * 2 + [1.0] * 2, [EARLY]),
        (True, 8, [9.0] * 2 + [1.0] * 6, []),
    ],
)  # fmt: skip
def test_the_curve_of_a_restarted_program_has_no_points_that_its_last_generation_did_not_reach(
    workspace, saves, second, losses, reported
):
    line = repositories.LINE.replace("steps = 4", "steps = 8")
    repositories.commit(workspace.repo, {"answer.py": RESTARTED.format(saves=saves, second=second), "line.toml": line})
    record = workspace.run()
    assert record.gang.restarts == 1
    assert [point.value for point in record.curve.points] == losses
    assert stage(record, "train").outputs["final_step"] == len(losses)
    assert said(record) == reported
    result = json.loads(workspace.store.get(f"{record.gang_prefix}/result.json").data)
    assert [loss for _, loss in result["jobs"][0]["losses"]] == losses


@pytest.fixture
def store(tmp_path):
    return FolderStore(tmp_path / "store")


def put(store, rank, *reports, **own):
    lines = [{"event": "evaluated", "step": 4, "seed": 1, "generation": 0, "metrics": each} | own for each in reports]
    store.put(f"x/ranks/{rank}.jsonl", "".join(json.dumps(each) + "\n" for each in lines).encode())


def words(store, world_size=2):
    return differing_metrics_text(store, "x", world_size=world_size)


def test_the_last_report_counts_and_only_one_of_the_same_step_and_generation(store):
    put(store, 0, {"a": 1.0}, {"a": 2.0})
    put(store, 1, {"a": 3.0}, {"a": 2.0})
    assert words(store) == ""
    for own in ({"step": 3}, {"generation": 1}, {"seed": 2}):
        put(store, 1, {"a": 3.0}, **own)
        assert words(store) == ""
    put(store, 1, {"a": 3.0})
    assert words(store) == "ranks reported different values of a: rank 0 2, rank 1 3; rank 0's counts"


def test_a_value_that_is_not_a_number_differs_from_one_that_is(store):
    put(store, 0, {"a": 1.0, "b": None})
    put(store, 1, {"a": None, "b": None})
    assert words(store) == "ranks reported different values of a: rank 0 1, rank 1 no finite number; rank 0's counts"


def test_many_ranks_and_metrics_are_said_in_few_words(store):
    for rank in range(200):
        put(store, rank, {f"m\x1b{n}": rank + n for n in range(5)})
    text = words(store, 200)
    assert text.startswith(
        "ranks reported different values of m 0: rank 0 0, rank 3 3, rank 6 6, rank 9 9 and 60 more; of m 1: "
    )
    assert text.endswith("; of 2 more metrics, too; those of rank 0 count")
    assert len(text) < 400


@pytest.mark.parametrize("text", [b"", b"[]\n{\n", b'{"event": "evaluated", "metrics": 7}\n'])
def test_nonsense_in_the_events_says_nothing(store, text):
    put(store, 0, {"a": 1.0})
    store.put("x/ranks/1.jsonl", text)
    assert words(store) == ""
    store.put("x/ranks/0.jsonl", text)
    assert words(store) == ""
