"""One run of one line, from a commit to its report, with a program of a few lines in the gang."""

import json
from dataclasses import replace

import pytest
from tests.line import repositories

from gangline.errors import CapacityError, ConfigError, GateError, StorageError, TrainingError, UsageError
from gangline.line.record.store import RecordStore
from gangline.spec.config.site import LimitsTable, Site, StoreTable
from gangline.spec.measurements import Drill
from gangline.spec.record import STAGES
from gangline.spec.run_flags import stage

WRITES_NOTHING = "import sys\nsys.exit(7)\n"


def test_a_commit_goes_through_every_stage_to_its_report(workspace):
    record = workspace.run()
    assert record.run.verdict == "passed"
    assert workspace.seen.stages == list(STAGES)
    assert [point.value for point in record.curve.points] == [2.5, 2.0, 1.5, 1.0]
    assert record.ledger.allocated_seconds > 0
    assert record.ledger.allocated_seconds == pytest.approx(sum(record.ledger.seconds.values()))
    assert {each.kind for each in record.artifacts} >= {"code", "plan", "metrics", "report", "junit"}
    page = workspace.store.get(f"{record.prefix}/report.html").data.decode()
    assert record.run.id in page
    assert json.loads(workspace.store.get(f"{record.prefix}/plan.json").data)["run"] == record.run.id


def test_the_same_question_finds_its_run_and_repeats_nothing(workspace):
    first = workspace.run()
    second = workspace.run()
    assert second == workspace.record(first.run.id)
    assert (second.seq, second.nonce) == (first.seq, first.nonce)
    assert workspace.seen.stages == []
    assert len(workspace.records()) == 1


def test_again_is_another_attempt_that_trains_again(workspace):
    first = workspace.run()
    second = workspace.run(again=True)
    assert (first.run.attempt, second.run.attempt) == (1, 2)
    assert stage(second, "train").state == "done"
    assert workspace.run().run.id == second.run.id


def test_another_line_is_another_run_and_takes_what_it_did_not_change(workspace):
    first = workspace.run()
    other = workspace.run(overrides=["gate.parity=0.5"])
    assert other.run.id != first.run.id
    assert stage(other, "submit").state == "skipped"
    assert stage(other, "train").state == "taken"
    assert stage(other, "train").taken_from == first.run.id
    assert other.curve == first.curve
    assert other.ledger is None


def test_another_environment_variable_is_another_training(workspace):
    workspace.run()
    other = workspace.run(overrides=['train.env.DIALECT="north"'])
    assert stage(other, "train").state == "done"


def test_what_a_drilled_run_trained_is_neither_taken_nor_a_base(workspace):
    faulty = workspace.run()
    drill = Drill(name="kill-rank", row="T1", result="held")
    RecordStore.of(workspace.store, faulty, workspace.sealer).change(lambda record: replace(record, drills=(drill,)))
    repositories.commit(workspace.repo, {"README.md": "words"})
    other = workspace.run()
    assert (stage(other, "train").state, other.commit.base) == ("done", None)
    repositories.commit(workspace.repo, {"README.md": "more words"})
    assert workspace.run().commit.base.run == other.run.id


def test_an_experiment_is_not_a_base_and_says_so_and_nothing_of_it_is_taken_where_it_may_be_published(workspace):
    experiment = workspace.run(overrides=["gate.parity=0.5"])
    assert experiment.inputs.overrides == ("gate.parity=0.5",)
    assert any("never a base, never published" in event.text for event in experiment.events)
    repositories.commit(workspace.repo, {"README.md": "words"})
    other = workspace.run()
    assert (stage(other, "train").state, other.commit.base) == ("done", None)
    again = workspace.run(overrides=["gate.parity=0.25"])
    assert stage(again, "train").taken_from == other.run.id, "another experiment takes what it finds"


def test_a_child_commit_takes_unchanged_stages_and_names_its_base(workspace):
    first = workspace.run()
    repositories.commit(workspace.repo, {"README.md": "words"})
    second = workspace.run()
    assert second.commit.base.run == first.run.id
    assert second.commit.changed == ("README.md",)
    assert (stage(second, "build").state, stage(second, "train").state) == ("taken", "taken")


def test_a_merge_is_judged_against_its_own_branch_and_trains_again_what_may_not_be_published(workspace):
    """Other commits of the merged branch shared its home on this machine."""
    workspace.run()
    repositories.git(workspace.repo, "checkout", "-q", "-b", "topic")
    repositories.commit(workspace.repo, {"answer.py": repositories.PROGRAM + "# of the topic\n"})
    topic = workspace.run()
    repositories.git(workspace.repo, "checkout", "-q", "-")
    repositories.commit(workspace.repo, {"README.md": "words"})
    own = workspace.run()
    repositories.git(workspace.repo, "merge", "-q", "--no-edit", "topic")
    merged = workspace.run()
    assert merged.commit.base.run == own.run.id
    assert (stage(merged, "train").state, stage(merged, "build").state) == ("done", "done")
    said = [event.text for event in merged.events if event.text.startswith(topic.run.id)]
    assert said == [f"{topic.run.id} has trained this, and may not be published: this run, which may, trains it again"]


def test_changed_code_is_trained(workspace):
    workspace.run()
    repositories.commit(workspace.repo, {"answer.py": repositories.PROGRAM + "# changed\n"})
    assert stage(workspace.run(), "train").state == "done"


def test_a_dirty_tree_runs_marked_and_is_refused_by_the_gate(workspace):
    (workspace.repo / "new.txt").write_text("not committed")
    with pytest.raises(GateError, match=r"uncommitted changes; git add and git commit .* git stash -u"):
        workspace.run()
    (record,) = workspace.records()
    assert "will not be published: the tree is dirty (1 untracked, e.g. new.txt)" in workspace.seen.notes[0]
    assert workspace.seen.notes[0] in [event.text for event in record.events if event.stage == "resolve"]
    assert record.run.verdict == "refused"
    assert b"not committed" in workspace.store.get(record.commit.patch).data
    assert stage(record, "publish").state == "skipped"
    assert stage(record, "report").state == "done"
    assert repositories.git(workspace.repo, "status", "--porcelain") == "?? new.txt"


def test_another_dirty_tree_is_another_run(workspace):
    for text in ("one", "two"):
        (workspace.repo / "new.txt").write_text(text)
        with pytest.raises(GateError, match="uncommitted"):
            workspace.run()
    assert len(workspace.records()) == 2


def test_a_named_commit_is_run_as_it_is_whatever_lies_on_disk(workspace):
    (workspace.repo / "answer.py").write_text(WRITES_NOTHING)
    record = workspace.run(commit="HEAD")
    assert record.run.verdict == "passed"
    assert record.commit.patch is None


def test_after_a_failure_only_the_report_runs_and_the_answer_stays(workspace):
    repositories.commit(workspace.repo, {"answer.py": WRITES_NOTHING})
    for _ in range(2):
        with pytest.raises(TrainingError):
            workspace.run()
    (record,) = workspace.records()
    assert (record.run.verdict, record.run.exit_code) == ("failed", 30)
    assert stage(record, "train").state == "failed"
    assert {stage(record, name).state for name in ("evaluate", "gate", "prove", "publish")} == {"skipped"}
    assert stage(record, "report").state == "done"
    assert b"failure" in workspace.store.get(f"{record.prefix}/junit.xml").data


def test_until_leaves_the_run_open_and_the_rest_continues_from_there(workspace):
    planned = workspace.run(until="plan")
    assert planned.run.state == "open"
    assert workspace.seen.stages == ["resolve", "build", "plan"]
    assert not (workspace.repo / ".gangline" / "gangs").exists()
    record = workspace.run()
    assert workspace.seen.stages == list(STAGES[3:])
    assert record.run.verdict == "passed"


def test_from_a_stage_whose_forerunners_are_missing_is_refused(workspace):
    with pytest.raises(UsageError, match="gate needs resolve"):
        workspace.run(start="gate")


def test_stages_one_by_one_give_the_same_end(workspace):
    run = workspace.run(until="resolve").run.id
    for name in STAGES[1:]:
        record = workspace.stage(name, run)
    assert record.run.verdict == "passed"
    assert [stage(record, name).tries for name in STAGES] == [1] * len(STAGES)
    again = workspace.stage("train", run)
    assert workspace.seen.stages == []
    assert again.seq == record.seq


def test_the_report_stage_waits_for_the_end_of_the_run(workspace):
    run = workspace.run(until="plan").run.id
    with pytest.raises(UsageError, match="submit is waiting"):
        workspace.stage("report", run)
    assert workspace.run().run.verdict == "passed"
    assert stage(workspace.record(run), "report").state == "done"


def test_a_stage_that_failed_answers_its_recorded_code(workspace):
    repositories.commit(workspace.repo, {"answer.py": WRITES_NOTHING})
    with pytest.raises(TrainingError):
        workspace.run()
    (record,) = workspace.records()
    with pytest.raises(TrainingError):
        workspace.stage("train", record.run.id)


def test_over_budget_nothing_is_started(workspace):
    workspace.run()
    repositories.commit(workspace.repo, {"answer.py": repositories.PROGRAM + "# slower\n"})
    with pytest.raises(GateError, match="time: "):
        workspace.run(overrides=["plan.deadline_seconds=0.001"])
    record = next(each for each in workspace.records() if each.run.verdict == "refused")
    assert record.gang is None
    assert {gate.name: gate.verdict for gate in record.gates}["budget"] == "no"


def test_a_loss_that_left_the_limit_is_refused(workspace):
    line = repositories.LINE + '[[gate.quality]]\nmetric = "loss"\nbetter = "lower"\nlimit = 0.5\n'
    repositories.commit(workspace.repo, {"line.toml": line})
    with pytest.raises(GateError, match=r"wanted at most 0\.5"):
        workspace.run()


@pytest.mark.parametrize(
    ("files", "asked", "error", "says"),
    [
        ({}, {"commit": "no-such-branch"}, UsageError, "git log"),
        ({}, {"commit": "--upload-pack=x"}, UsageError, "wanted a commit"),
        ({}, {"until": "nowhere"}, UsageError, "wanted a stage"),
        ({}, {"start": "train", "until": "plan"}, UsageError, "comes after"),
        ({"line.toml": "[project"}, {}, ConfigError, "line.toml"),
        ({"line.toml": repositories.LINE + "speed = 9\n"}, {}, ConfigError, "speed"),
        (
            {"line.toml": repositories.LINE.replace('command = ["python", "answer.py"]', 'task = "gone:Task"')},
            {},
            ConfigError,
            "gone.py",
        ),
        (
            {"line.toml": repositories.LINE.replace('command = ["python", "answer.py"]', 'task = "answer:Tsk"')},
            {},
            ConfigError,
            "answer.py",
        ),
        ({"line.toml": repositories.LINE + '[data]\ntext = ["repo:none/*.txt"]\n'}, {}, ConfigError, "none/"),
    ],
)
def test_a_wrong_question_is_answered_with_what_works(workspace, files, asked, error, says):
    if files:
        repositories.commit(workspace.repo, files)
    with pytest.raises(error, match=says):
        workspace.run(**asked) if asked or not files else run_unsettled(workspace)


def run_unsettled(workspace):
    """The inventory of a line that does not hold cannot be settled beforehand."""
    from gangline.line.stages.run_line import run_line

    return run_line(workspace.repo, **workspace.where, observer=workspace.seen)


def test_a_commit_without_line_is_shown_how_to_get_one(workspace):
    repositories.git(workspace.repo, "rm", "--quiet", "line.toml")
    repositories.commit(workspace.repo, {})
    with pytest.raises(ConfigError, match=r"found none in commit .*; gangline init .* gangline new"):
        run_unsettled(workspace)


def test_a_folder_that_is_not_a_repository_is_shown_the_commands(workspace, tmp_path):
    bare = tmp_path / "bare"
    bare.mkdir()
    workspace.repo = bare
    with pytest.raises(UsageError, match="git init"):
        run_unsettled(workspace)


def test_a_repository_without_commit_is_shown_the_command(workspace, tmp_path):
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    repositories.git(fresh, "init", "--quiet")
    workspace.repo = fresh
    with pytest.raises(UsageError, match="git commit"):
        run_unsettled(workspace)


def test_a_line_may_live_in_a_part_of_a_repository(workspace, tmp_path):
    whole = tmp_path / "whole"
    files = {"part/line.toml": repositories.LINE, "part/answer.py": repositories.PROGRAM, "other.txt": "x"}
    repositories.make_repository(whole, files)
    workspace.repo = whole / "part"
    record = workspace.run()
    assert record.run.verdict == "passed"
    assert "1 files" in stage(record, "build").message


def test_a_store_that_fails_leaves_the_run_open_to_be_resumed(workspace, monkeypatch):
    from gangline.line.stages import executor

    monkeypatch.setattr(executor, "STORE_TRIES", 1)
    plans = {**executor.STAGE_FUNCTIONS}

    def away(ctx):
        raise StorageError("the store is away")

    monkeypatch.setattr(executor, "STAGE_FUNCTIONS", plans | {"plan": away})
    with pytest.raises(StorageError, match="away"):
        workspace.run()
    (record,) = workspace.records()
    assert record.run.state == "open"
    monkeypatch.setattr(executor, "STAGE_FUNCTIONS", plans)
    record = workspace.run()
    assert record.run.verdict == "passed"
    assert stage(record, "plan").tries == 2


def test_a_site_holds_the_number_of_runs_that_train_at_once(workspace):
    workspace.site = Site(limits=LimitsTable(active_runs=1))
    waiting = workspace.run(until="submit")
    with pytest.raises(CapacityError, match=f"the first {waiting.run.id}"):
        workspace.run(overrides=["train.seed=2"])
    assert workspace.run().run.verdict == "passed"
    assert workspace.run(overrides=["train.seed=2"]).run.verdict == "passed"


def test_a_run_that_is_over_is_answered_without_taking_its_lease(workspace):
    record = workspace.run()
    key = f"{record.prefix}/lease.json"
    before = workspace.store.get(key)
    workspace.run()
    assert workspace.store.get(key) == before


def test_a_store_that_cannot_be_written_is_said_so(workspace):
    workspace.site = Site(store=StoreTable(url="file:/proc/gangline"))
    with pytest.raises(StorageError, match="/proc/gangline"):
        workspace.run()


def test_a_run_of_a_linked_work_tree_finds_its_base_and_is_listed_with_it(workspace, tmp_path):
    first = workspace.run()
    linked = replace(workspace, repo=tmp_path / "linked")
    repositories.git(workspace.repo, "worktree", "add", "-q", "-b", "other", str(linked.repo))
    repositories.commit(linked.repo, {"answer.py": repositories.PROGRAM + "# changed\n"})
    second = linked.run()
    assert (second.commit.base.run, second.run.verdict) == (first.run.id, "passed")
    assert [each.run.id for each in workspace.records()] == [each.run.id for each in linked.records()]
    assert not (linked.repo / ".gangline").exists()
