"""A rehearsal on two real ranks, from the strike to the record."""

import shutil
from hashlib import sha256
from pathlib import Path

import pytest
from tests.registry.passed_run import EXAMPLE, git

from gangline import procfs
from gangline.drill.catalogue import DRILLS, DrillRequest, choose_drill
from gangline.drill.run import _require_step_reports, drill, drill_all
from gangline.errors import ConfigError, UsageError
from gangline.launch.local.folder import GangFolder
from gangline.line.gangs import launchers
from gangline.line.record import runs
from gangline.line.request.run_request import resolve_request
from gangline.spec.config.site import LaunchTable, Site
from gangline.storage import site_paths

LINE = """
[project]
name = "tiny"
task = "model:ByteGPT"
[data]
text = ["repo:*.py"]
[model]
layers = 1
width = 32
context = 32
[optimizer.elementwise]
rule = "adamw"
lr = 1e-3
[train]
steps = 60
global_batch = 8
ranks = 2
strategy = "ddp"
[train.checkpoint]
every = 10
"""


@pytest.fixture
def repo(tmp_path):
    folder = tmp_path / "repo"
    folder.mkdir()
    shutil.copy(EXAMPLE, folder / "model.py")
    shutil.copy(Path(__file__), folder / "text.py")
    (folder / "line.toml").write_text(LINE)
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "first")
    return folder


def rehearse(repo, name, **arguments):
    environ = {"HOME": str(repo.parent), "XDG_CONFIG_HOME": str(repo.parent / "config")}
    reported = []
    report = drill(name, repo=repo, site=Site(), environ=environ, tell=reported.append, **arguments)
    return report, runs.find_run(site_paths.open_site_store(repo, Site(), environ), report.run), reported


@pytest.mark.slow
@pytest.mark.row("T1")
@pytest.mark.timeout(900)
def test_a_killed_rank_comes_back_and_the_record_says_so(repo):
    report, record, reported = rehearse(repo, "kill-rank", rank=1, step=25)
    assert (report.exit_code, report.drill.result) in [(0, "held"), (0, "held_late")], reported
    assert record.drills == (report.drill,)
    assert record.run.verdict == "passed"
    assert record.stages["publish"].state == "skipped"
    assert "drilled" in record.stages["publish"].message
    assert report.drill.lost_steps <= 20
    assert record.gang.restarts == 1
    assert record.ledger.seconds["drill"] == pytest.approx(2 * report.drill.lost_seconds)
    assert sum(record.ledger.seconds.values()) == pytest.approx(record.ledger.allocated_seconds, rel=1e-3)
    assert [line.split()[0] for line in reported if not line.startswith(("plan", "train", "run"))] == [
        "inject", "detect", "recover", "lost", "samples", "check", "result",
    ]  # fmt: skip
    home = GangFolder(launchers.gangs_root(repo) / record.gang.name).inside
    assert list(procfs.with_variable("GANGLINE_HOME", str(home))) == []


PROGRAM = """
import time
from gangline.train import Program

with Program() as program:
    loss, folder = 5.0, program.resume()
    if folder is not None:
        loss = float((folder / "loss.txt").read_text())
    while program.has_more:
        time.sleep(0.1)
        loss *= 0.9
        program.step(loss=loss)
        if program.save_due:
            program.save({"loss.txt": str(loss).encode()})
"""
PROGRAM_LINE = """
[project]
name = "own"
command = ["python", "train.py"]
[train]
steps = 30
global_batch = 2
ranks = 2
[train.checkpoint]
every = 8
"""


@pytest.mark.long
@pytest.mark.row("T1")
@pytest.mark.timeout(600)
def test_what_a_drill_cost_a_program_is_one_figure_in_its_result_its_ledger_and_its_stored_page(repo):
    """A program accounts for no steps: its time is `other`, so what was lost is taken from there."""
    (repo / "train.py").write_text(PROGRAM)
    (repo / "line.toml").write_text(PROGRAM_LINE)
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "-m", "a program")
    report, record, reported = rehearse(repo, "kill-rank")
    assert report.drill.result in ("held", "held_late"), reported
    lost = 2 * report.drill.lost_seconds
    assert record.ledger.seconds["drill"] == pytest.approx(lost)
    assert record.ledger.seconds["start"] > 0.1, "the first start is an ordinary one"
    assert sum(record.ledger.seconds.values()) == pytest.approx(record.ledger.allocated_seconds, rel=1e-3)
    assert any(f", {lost:.1f} rank-seconds" in line for line in reported)
    store = site_paths.open_site_store(repo, Site(), {"HOME": str(repo.parent)})
    page = store.get(f"{record.prefix}/report.html").data
    assert f'<td class="wide">{report.drill.result.replace("_", " ")}' in page.decode()
    assert b"no result yet" not in page
    (pinned,) = [each.sha256 for each in record.artifacts if each.key.endswith("/report.html")]
    assert sha256(page).hexdigest() == pinned


@pytest.mark.slow
@pytest.mark.row("T3")
@pytest.mark.timeout(900)
def test_a_rank_that_is_stopped_for_two_seconds_costs_no_restart(repo):
    report, record, reported = rehearse(repo, "freeze-rank", rank=0, step=20, seconds=2.0)
    assert (report.exit_code, report.drill.result) == (0, "held"), reported
    assert record.gang.restarts == 0
    assert report.drill.recover_seconds >= 1.5


def change(repo, *pairs):
    """Another line, committed."""
    line = (repo / "line.toml").read_text()
    for old, new in pairs:
        assert old in line
        line = line.replace(old, new)
    (repo / "line.toml").write_text(line)
    git(repo, "commit", "--quiet", "-am", "another line")


@pytest.mark.slow
@pytest.mark.row("T9")
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("answer", "left_out", "exit_code"), [("stop", 0, 31), ("skip", 8, 0), ("rollback", 8, 0)])
def test_a_poisoned_batch_is_answered_as_the_line_says(repo, answer, left_out, exit_code):
    change(repo, ("every = 10", f'every = 10\n[train.recovery]\nnon_finite = "{answer}"'))
    report, record, reported = rehearse(repo, "poison", rank=1, step=25)
    assert (report.exit_code, report.drill.result) == (0, "held"), reported
    assert report.drill.seen == f"step 26 is not finite: {answer}"
    assert record.run.exit_code == exit_code
    samples = next(line for line in reported if line.startswith("samples"))
    assert ("8 skipped on purpose" in samples) == bool(left_out), samples
    assert record.gang.restarts == 0


@pytest.mark.slow
@pytest.mark.row("T8")
@pytest.mark.timeout(900)
def test_a_rank_without_memory_is_tried_once_more_with_half_the_micro_batch(repo):
    report, record, reported = rehearse(repo, "oom", rank=1, step=25)
    assert (report.exit_code, report.drill.result) == (0, "held"), reported
    assert any(line.startswith("end      exit 32") for line in reported)
    assert record.run.verdict == "passed"
    assert record.gang.name.endswith("-t2")


@pytest.mark.slow
@pytest.mark.row("S5")
@pytest.mark.timeout(900)
def test_a_disk_that_stays_full_ends_ranks_with_40_and_the_run_passes_all_the_same(repo):
    change(repo, ("steps = 60", "steps = 1200"), ("every = 10", "every = 20\nmax_unsaved_seconds = 4"))
    report, record, reported = rehearse(repo, "fill-disk", seconds=15.0)
    assert (report.exit_code, report.drill.result) == (0, "held"), reported
    assert record.gang.restarts >= 1
    assert record.run.verdict == "passed"


@pytest.mark.slow
@pytest.mark.row("S6")
@pytest.mark.timeout(900)
def test_an_outage_without_a_save_in_it_strikes_nothing(repo):
    change(repo, ("steps = 60", "steps = 1200"), ("every = 10", "every = 600"))
    report, _, reported = rehearse(repo, "kill-store", step=20, seconds=0.2)
    assert (report.exit_code, report.drill.result) == (10, "not_struck"), reported
    assert "no save was due in the 0.2 s" in report.drill.reason


def test_a_drill_that_changes_its_gang_takes_no_run_that_trains_and_no_command(repo):
    for name in ("poison", "oom", "lose-node", "kill-store", "slow-store", "fill-disk"):
        with pytest.raises(ConfigError, match="changes a gang before its start"):
            rehearse(repo, name, run="tiny-00000000-aaaaaa")
    change(repo, ('task = "model:ByteGPT"', 'command = ["python", "model.py"]'))
    for name in ("poison", "oom"):
        with pytest.raises(ConfigError, match="has a loop and batches of its own"):
            rehearse(repo, name)
    assert not (repo / ".gangline" / "gangs").exists()


def test_a_command_that_cannot_report_steps_is_refused_before_anything_starts(repo):
    change(repo, ('task = "model:ByteGPT"', 'command = ["python", "plain.py"]'))
    for each in repo.glob("*.py"):
        each.unlink()
    (repo / "plain.py").write_text("print('training')\n")
    (repo / "README.md").write_text("run it with gangline\n")
    for name in ("kill-rank", "stop", "kill-store"):
        with pytest.raises(ConfigError, match=f"drill {name} is refused: .* no file of the commit names gangline"):
            rehearse(repo, name)
    assert not (repo / ".gangline" / "gangs").exists()
    (repo / "plain.py").write_text("from gangline.train import Program\n")
    question = resolve_request(repo, commit=None, overrides=(), strategy=None)
    _require_step_reports(DrillRequest(kind=DRILLS["kill-rank"], rank=None, step=None, seconds=None, seed=1), question)


def test_a_step_or_a_run_that_is_not_there_is_refused_before_anything_starts(repo):
    with pytest.raises(UsageError, match="between 1 and 59"):
        rehearse(repo, "kill-rank", step=60)
    with pytest.raises(UsageError, match="no run"):
        rehearse(repo, "kill-rank", run="tiny-00000000-aaaaaa")
    with pytest.raises(ConfigError, match="refused"):
        rehearse(repo, "drop-api")
    with pytest.raises(ConfigError, match="makes it elastic"):
        rehearse(repo, "resize")
    for name in DRILLS:
        with pytest.raises(ConfigError, match=r"on kubernetes; .* kubectl drain of a server of the run loses a node"):
            choose_drill(name, Site(launch=LaunchTable(target="kubernetes")))
    assert not (repo / ".gangline" / "gangs").exists()


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_every_drill_that_works_here_holds_on_an_elastic_line(repo):
    line = (repo / "line.toml").read_text().replace("ranks = 2", "ranks = [1, 2]").replace("steps = 60", "steps = 4000")
    (repo / "line.toml").write_text(line.replace("every = 10", "every = 50"))
    git(repo, "commit", "--quiet", "-am", "elastic")
    reported = []
    environ = {"HOME": str(repo.parent), "XDG_CONFIG_HOME": str(repo.parent / "config")}
    done = drill_all(repo=repo, site=Site(), environ=environ, tell=reported.append)
    assert [report.drill.name for report in done.reports] == list(DRILLS)
    assert {report.drill.name: report.drill.reason for report in done.reports if report.exit_code} == {}, reported
    assert (done.exit_code, done.skipped) == (0, ())
    assert {(r.drill.lost_samples, r.drill.repeated_samples) for r in done.reports} == {(0, 0)}
    assert reported[-1].endswith(
        " 0 broken, 0 not struck, 0 skipped; samples lost 0, taken twice 0, counted in 13 of 13 trainings"
    )
