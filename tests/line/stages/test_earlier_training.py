"""Whole runs that could take an earlier training: only if all that it read is the same, and with its own evaluation."""

from dataclasses import replace

import pytest
from tests.line import repositories

from gangline.report.run.markdown import render_markdown
from gangline.spec.config.site import SandboxTable
from gangline.spec.record import RETRAINED
from gangline.spec.run_flags import stage

LINE = """\
[project]
name = "cheap"
command = ["python", "train.py"]
metrics = "metrics.json"
distributed = false
exclude = ["README.md"]
[train]
steps = 1
global_batch = 1
ranks = 1
[[gate.quality]]
metric = "loss"
better = "lower"
tolerance_percent = 1
"""
PROGRAM = "import json, os\njson.dump({{'loss': float(open({path!r}).read())}}, open('metrics.json', 'w'))\n"


@pytest.fixture
def number(workspace, tmp_path):
    """A file outside of the repository, which the program of the workspace reads."""
    path = tmp_path / "outside" / "n.txt"
    path.parent.mkdir()
    path.write_text("1")
    workspace.site = replace(workspace.site, sandbox=SandboxTable(mode="off"))
    repositories.commit(workspace.repo, {"train.py": PROGRAM.format(path=str(path)), "line.toml": LINE})
    return path


def next_run(workspace, **asked):
    """A run of a commit that changes nothing of the training; its gates decide nothing here."""
    repositories.commit(workspace.repo, {"README.md": f"{len(workspace.records())}\n"})
    try:
        return workspace.run(**asked)
    except Exception:
        return max(workspace.records(), key=lambda each: each.run.created)


def test_a_training_that_read_what_is_still_the_same_is_taken_with_a_sentence_of_what_was_compared(workspace, number):
    first = workspace.run()
    second = next_run(workspace)
    train = stage(second, "train")
    assert (train.state, train.taken_from) == ("taken", first.run.id)
    assert train.message == (
        f"taken from {first.run.id}: same code, environment, plan and declared data;"
        " it read 1 file that the line does not declare, which is unchanged"
    )
    assert second.ran == first.ran


def test_a_training_that_read_what_has_changed_is_made_again_and_its_gate_judges_the_new_value(workspace, number):
    first = workspace.run()
    number.write_text("5")
    second = next_run(workspace)
    assert stage(second, "train").state == "done"
    assert (second.metrics["loss"].value, second.run.verdict) == (5.0, "refused")
    (said,) = [event.text for event in second.events if event.kind == RETRAINED]
    assert said == (
        f"trained again, though {first.run.id} has trained this: it read {number},"
        " which the line does not declare and which is not the same here and now"
    )
    assert f"gangline diff {first.run.id} {second.run.id}" in render_markdown(second), "no commit is searched"
    number.write_text("1")
    third = next_run(workspace)
    assert (stage(third, "train").taken_from, third.metrics["loss"].value) == (first.run.id, 1.0), "the older one fits"


def test_a_run_that_is_found_again_says_that_what_it_read_has_changed(workspace, number):
    workspace.run()
    workspace.run()
    assert workspace.seen.notes == []
    number.write_text("5")
    workspace.run()
    (note,) = workspace.seen.notes
    assert note.startswith(
        f"changed since this run read it: {number}, which the line does not declare; gangline run --a"
    )


def test_a_file_that_changes_after_it_was_read_is_noted_and_the_training_never_taken(workspace, number):
    text = f"{PROGRAM.format(path=str(number))}open({str(number)!r}, 'w').write('7')\n"
    repositories.commit(workspace.repo, {"train.py": text})
    first = workspace.run()
    assert [each.changed for each in first.ran.reads] == [True]
    number.write_text("1")
    second = next_run(workspace)
    assert stage(second, "train").state == "done"
    assert f"{number} changed while it ran" in "".join(event.text for event in second.events if event.kind == RETRAINED)


def test_each_rank_reports_its_reads_so_that_no_shard_is_passed_over(workspace, number):
    for rank in (0, 1):
        (number.parent / f"shard-{rank}").write_text("1")
    text = (
        "import json, os\nrank = os.environ['RANK']\n"
        f"value = float(open({str(number.parent)!r} + '/shard-' + rank).read())\n"
        "if rank == '0': json.dump({'loss': value}, open('metrics.json', 'w'))\n"
    )
    line = LINE.replace("distributed = false\n", "").replace("ranks = 1", "ranks = 2").replace("batch = 1", "batch = 2")
    repositories.commit(workspace.repo, {"train.py": text, "line.toml": line})
    first = workspace.run()
    assert first.ran.ranks == (0, 1)
    (number.parent / "shard-1").write_text("2")
    second = next_run(workspace)
    assert stage(second, "train").state == "done"
    assert "/shard-1, which" in "".join(event.text for event in second.events if event.kind == RETRAINED)


def test_seeds_of_another_training_with_the_same_key_are_not_taken(workspace, number):
    repositories.commit(workspace.repo, {"line.toml": LINE + "[evaluate]\nseeds = 3\n"})
    workspace.run()
    number.write_text("5")
    second = next_run(workspace)
    assert (stage(second, "train").state, stage(second, "evaluate").state) == ("done", "done")
    assert set(second.metrics["loss"].seeds.values()) == {5.0}
    third = next_run(workspace)
    assert (stage(third, "train").taken_from, stage(third, "evaluate").taken_from) == (second.run.id, second.run.id)


def test_what_further_seeds_read_belongs_to_the_reads_of_the_run(workspace, number):
    text = (
        f"import json, os\npath = {str(number)!r}\nif os.environ['GANGLINE_SEED'] != '1': path += '.other'\n"
        "json.dump({'loss': float(open(path).read())}, open('metrics.json', 'w'))\n"
    )
    other = number.with_name("n.txt.other")
    other.write_text("1")
    repositories.commit(workspace.repo, {"train.py": text, "line.toml": LINE + "[evaluate]\nseeds = 2\n"})
    first = workspace.run()
    assert {each.path for each in first.ran.reads} == {str(number), str(other)}
    other.write_text("2")
    assert stage(next_run(workspace), "train").state == "done"
