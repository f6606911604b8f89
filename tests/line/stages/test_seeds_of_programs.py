"""Programs are trained once for each seed that the line asks for: the band they learn, and what becomes of gangs."""

import json
from dataclasses import replace

import pytest
from tests.line import repositories
from tests.line.records import record as make_record

from gangline.cli.view.run_view import PlainView
from gangline.errors import GateError, TrainingError
from gangline.launch.protocol import GangStatus
from gangline.line.gangs import attempts
from gangline.line.gangs.launchers import gangs_root
from gangline.line.gangs.logs import gang_of_role, stored_lines
from gangline.line.run.cancel import stop_gangs
from gangline.line.run.watch import running_gangs
from gangline.line.stages.run_line import run_line
from gangline.spec.identity import ATTEMPTS, gang_name, gang_number, is_gang_of, seed_gangs
from gangline.spec.record import StageInfo
from gangline.spec.run_flags import stage
from gangline.storage.objects.protocol import list_all

pytestmark = pytest.mark.long

HEAD = """\
import os, sys
from gangline.train import Program
with Program() as program:
    resumed = program.resume() is not None
    while program.has_more:
        program.step(loss=1.0 / (program.step_number + 1))
        if program.save_due:
            program.save({"weights": b"w"})
    print("seed", program.seed)
"""
GATE = '[evaluate]\nseeds = 3\n[[gate.quality]]\nmetric = "error"\nbetter = "lower"\n'


def commit(workspace, text, tables=GATE, line=repositories.LINE):
    return repositories.commit(workspace.repo, {"answer.py": text, "line.toml": line + tables})


def reads(base, noise=0.01):
    return f"{HEAD}    program.report(error={base} + {noise} * program.seed, resumed=float(resumed))\n"


def judged(record):
    (gate,) = (each for each in record.gates if each.name == "quality:error")
    return gate


def events(record, kind):
    return [event.text for event in record.events if event.kind == kind]


def by_name(record):
    return {gate.name: gate.verdict for gate in record.gates}


def test_each_seed_is_trained_and_the_band_refuses_a_regression(workspace):
    commit(workspace, reads(1.0))
    record = workspace.run()
    error = record.metrics["error"]
    assert error.seeds == {"1": 1.01, "2": 1.02, "3": 1.03}
    assert error.value == 1.01
    assert error.band is not None
    assert (error.band.n, error.band.equal) == (3, False)
    assert record.curve.seed_points.keys() == {"1", "2", "3"}
    assert "seeds 1 2 3: band" in stage(record, "evaluate").message
    commit(workspace, reads(1.02) + "# noise\n")
    assert judged(workspace.run()).verdict == "yes"
    commit(workspace, reads(1.3))
    with pytest.raises(GateError, match=r"1\.31 is outside the base band .* \(3 seeds of cheap-"):
        workspace.run()


def test_steps_of_a_further_seed_are_shown_with_the_seed_that_they_belong_to(workspace, monkeypatch):
    shown: list[str] = []
    monkeypatch.setattr(PlainView, "stage_ended", lambda *_: None)
    monkeypatch.setattr("gangline.cli.view.run_view.SECONDS_BETWEEN", 0.0)
    commit(workspace, reads(1.0))
    run_line(workspace.repo, **workspace.where, observer=PlainView(shown.append))
    of_steps = [line for line in shown if line.startswith("evaluate") and "/4" in line]
    assert of_steps
    assert all("seed 2 (2 of 3)" in line or "seed 3 (3 of 3)" in line for line in of_steps)


def test_a_seed_saves_next_to_the_others_and_continues_from_none_of_them(workspace):
    commit(workspace, reads(1.0))
    record = workspace.run()
    assert record.metrics["resumed"].seeds == {"1": 0.0, "2": 0.0, "3": 0.0}
    saves = {
        entry.key.partition("/program/")[0]
        for entry in list_all(workspace.store, record.prefix)
        if "/program/" in entry.key
    }
    gang = record.gang_prefix
    assert saves == {gang, f"{gang}/seeds/2", f"{gang}/seeds/3"}
    assert [gang_of_role(record, f"seed-{seed}") for seed in (2, 3)] == list(seed_gangs(record).values())


@pytest.mark.long
def test_what_seeds_cost_is_in_the_ledger(workspace):
    commit(workspace, reads(1.0), "")
    one = workspace.run().ledger
    commit(workspace, reads(1.0) + "# three\n")
    record = workspace.run()
    folders = sorted(gangs_root(workspace.repo).glob(f"{record.run.id}*"))
    ends = [json.loads((folder / "gang" / "exit-0.json").read_text()) if (folder / "gang").is_dir()
            else json.loads((folder / "exit-0.json").read_text()) for folder in folders]  # fmt: skip
    assert len(ends) == 3
    assert one is not None
    assert record.ledger.allocated_seconds == pytest.approx(sum(end["allocated_seconds"] for end in ends))
    assert sum(record.ledger.seconds.values()) == pytest.approx(record.ledger.allocated_seconds)


def test_the_seed_is_in_the_environment_and_in_the_words_of_the_command(workspace):
    line = repositories.LINE.replace('"answer.py"', '"answer.py", "--seed={seed}", "{other} {{x}"')
    shows = (
        "    program.report(word=float(sys.argv[1].removeprefix('--seed=')), env=float(os.environ['GANGLINE_SEED']))\n"
    )
    shows += "    assert sys.argv[2] == '{other} {{x}', sys.argv\n"
    commit(workspace, HEAD + shows, "[evaluate]\nseeds = 2\n", line)
    record = workspace.run()
    assert record.metrics["word"].seeds == record.metrics["env"].seeds == {"1": 1.0, "2": 2.0}


@pytest.mark.long
def test_a_program_that_does_not_read_its_seed_is_reported_and_its_band_is_the_floor(workspace):
    commit(workspace, reads(1.0, noise=0))
    record = workspace.run()
    said = "seeds 1 2 3 gave equal values: the program does not use its seed; the band is its floor only"
    assert said in events(record, "seeds")
    assert record.metrics["error"].band.equal
    assert "its seeds gave equal values, as if the program did not use its seed" in judged(record).reason
    commit(workspace, reads(1.0005, noise=0))
    assert judged(workspace.run()).verdict == "yes"
    commit(workspace, reads(1.14, noise=0))
    with pytest.raises(GateError, match=r"outside the base band .* the program did not use its seed"):
        workspace.run()


def test_a_gated_metric_that_no_seed_changes_is_reported_next_to_one_that_all_change(workspace):
    text = HEAD.replace("loss=1.0", "loss=program.seed")
    commit(workspace, f"{text}    program.report(error=1.0, parameters=7, spread=program.seed / 10)\n")
    record = workspace.run()
    assert events(record, "seeds") == ["seeds 1 2 3 gave equal values of error: the band is its floor only"]
    assert record.metrics["error"].band.equal
    assert not record.metrics["spread"].band.equal
    assert "seeds 1 2 3: band of error 1 ± 0.1 %" in stage(record, "evaluate").message
    assert "its seeds gave equal values" in judged(record).reason


@pytest.mark.long
def test_a_metric_that_no_gate_judges_and_no_seed_changes_is_not_reported(workspace):
    commit(workspace, f"{HEAD}    program.report(error=1.0 + program.seed, parameters=7)\n")
    record = workspace.run()
    assert events(record, "seeds") == []
    assert not record.metrics["error"].band.equal


@pytest.mark.long
def test_seeds_that_end_alike_but_took_other_ways_use_their_seed(workspace):
    text = HEAD.replace("loss=1.0", "loss=program.seed")
    commit(workspace, f"{text}    program.report(loss=1.0)\n", GATE.replace('"error"', '"loss"'))
    record = workspace.run()
    assert events(record, "seeds") == []
    assert not record.metrics["loss"].band.equal


def test_a_seed_that_fails_fails_the_stage_by_name(workspace):
    commit(workspace, reads(1.0) + "    assert program.seed != 2, 'no luck'\n")
    with pytest.raises(TrainingError, match=r"^seed 2: "):
        workspace.run()
    (record,) = workspace.records()
    assert stage(record, "evaluate").state == "failed"
    assert stage(record, "evaluate").message.startswith("seed 2: ")
    assert record.metrics.keys().isdisjoint({"error"})


def test_a_driver_that_takes_over_does_not_train_a_finished_seed_again(workspace, monkeypatch):
    commit(workspace, reads(1.0))
    real = attempts.follow

    def dies(ctx, name, gang, **known):
        if gang.endswith("-e201"):
            raise KeyboardInterrupt
        return real(ctx, name, gang, **known)

    monkeypatch.setattr(attempts, "follow", dies)
    with pytest.raises(KeyboardInterrupt):
        workspace.run()
    (record,) = workspace.records()
    first = gangs_root(workspace.repo) / seed_gangs(record)[2] / "launch.json"
    launched = first.read_bytes()
    monkeypatch.setattr(attempts, "follow", real)
    ended = workspace.run()
    assert ended.run.id == record.run.id
    assert ended.metrics["error"].seeds.keys() == {"1", "2", "3"}
    assert first.read_bytes() == launched


def test_a_run_that_changes_nothing_takes_the_seeds_from_before(workspace):
    commit(workspace, reads(1.0))
    workspace.run()
    repositories.commit(workspace.repo, {"README.md": "words"})
    record = workspace.run()
    assert stage(record, "evaluate").state == "taken"
    assert record.metrics["error"].seeds.keys() == {"1", "2", "3"}


def test_nothing_is_trained_again_for_a_program_that_reports_nothing(workspace):
    commit(workspace, "print('trained')\n", "[evaluate]\nseeds = 3\n")
    record = workspace.run()
    assert stage(record, "evaluate").state == "skipped"
    assert len(list(gangs_root(workspace.repo).iterdir())) == 1


def test_the_seeds_of_a_task_are_in_one_gang(workspace):
    commit(workspace, reads(1.0))
    record = workspace.run()
    values = record.inputs.values | {"project.task": "model:Demo"}
    assert seed_gangs(replace(record, inputs=replace(record.inputs, values=values))) == {}


def test_a_log_that_a_pod_left_of_a_seed_is_found_by_its_role(workspace):
    workspace.store.put("runs/x/gang/seeds/2/logs/0.log", b"seed 2\n")
    assert list(stored_lines(workspace.store, "runs/x/gang", "seed-2", 0)) == ["seed 2"]


def with_seeds(*seeds):
    reported = make_record()
    return replace(reported, inputs=replace(reported.inputs, seeds=seeds, values={}))


def test_every_gang_of_every_seed_and_what_runs_outside_of_them_is_stopped():
    class Launcher:
        def __init__(self, standing):
            self.standing, self.cancelled = standing, []

        def status(self, name):
            return GangStatus(state="running" if name in self.standing else "absent", ranks=1)

        def cancel(self, name, **_):
            self.cancelled.append(name)

        def cancel_modules(self, run):
            self.cancelled.append(f"modules of {run}")

    record = with_seeds(1, 2, 3)
    run = record.run.id
    launcher = Launcher({run, f"{run}-e101", f"{run}-e102", f"{run}-e201"})
    stop_gangs(record, launcher, reason="asked", save=True)
    assert launcher.cancelled == [f"modules of {run}", run, f"{run}-e101", f"{run}-e102", f"{run}-e201"]


def test_who_watches_follows_the_seeds_one_after_the_other():
    record = replace(with_seeds(1, 2, 3), stages={"evaluate": StageInfo(state="running")})
    run = record.run.id
    assert running_gangs(record) == ("evaluate", (f"{run}-e101", f"{run}-e201"))
    task = replace(record, inputs=replace(record.inputs, values={"project.task": "model:Demo"}))
    assert running_gangs(task) == ("evaluate", (f"{run}-eval",))


def test_names_of_gangs_stay_within_what_a_cluster_takes():
    record = with_seeds(*range(1, 100))
    names = [gang_name("a" * 36, "evaluate", gang_number(chain, ATTEMPTS - 1)) for chain in (1, 98)]
    assert max(map(len, names)) <= 42
    assert len(set(seed_gangs(record).values())) == 98
    assert all(is_gang_of(name, record.run.id) for name in seed_gangs(record).values())
