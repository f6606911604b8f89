"""A run under kfp's local runner: the same story as `gangline run`, whatever happens on the way."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests.kfp.driving import kfp_run, story
from tests.line import repositories

from gangline import procfs
from gangline.errors import GateError, IntegrityError, TrainingError, UsageError
from gangline.kfp.local_runner import interruption
from gangline.kfp.task_events import FILE, TaskEventReader, TaskEventWriter
from gangline.line.gangs.follow import Interrupted
from gangline.line.gangs.sandbox import sandbox_of
from gangline.line.record.observer import SilentObserver
from gangline.line.request.run_request import resolve_request
from gangline.line.run import driver as becoming
from gangline.line.stages.run_stage import run_stage
from gangline.spec.record import StageInfo
from gangline.spec.run_flags import stage
from gangline.storage.probe import probe

FAILS = "import sys\nsys.exit(7)\n"
SLOW = """\
import json, os, pathlib, time
out = pathlib.Path(os.environ["GANGLINE_OUT"])
with open(os.environ["HOME"] + "/trained", "a") as file:
    file.write("x")
while not pathlib.Path(os.environ["HOME"], "go").exists():
    time.sleep(0.02)
(out / "result.json").write_text(json.dumps({"role": "train", "final_step": 4}))
"""


@pytest.fixture
def home(workspace, tmp_path):
    """That of programs of the workspace's own commits."""
    asked = resolve_request(workspace.repo, commit=None, overrides=(), strategy=None)
    sandbox = sandbox_of(workspace.repo, "own", home=asked.kept_home, **workspace.where)
    return tmp_path if sandbox.is_unconfined else sandbox.home


def both(workspace, files, asked=lambda run: run()):
    """Records and what was told of the same question twice, from the same empty place."""
    reported = []
    for run in (workspace.run, partial(kfp_run, workspace)):
        shutil.rmtree(workspace.repo)
        repositories.make_repository(
            workspace.repo, {"line.toml": repositories.LINE, "answer.py": repositories.PROGRAM}
        )
        repositories.commit(workspace.repo, files)
        asked(run)
        reported.append((workspace.records()[0], workspace.seen.ended))
    return reported


@pytest.mark.long
def test_the_record_reports_the_same_story_as_under_the_driver_of_this_process(workspace):
    (here, seen_here), (there, seen_there) = both(workspace, {})
    assert there.run.verdict == "passed"
    assert story(there) == story(here)
    assert (here.run.driver.kind, there.run.driver.kind) == ("run", "kfp")
    assert seen_there == seen_here
    assert set(there.ledger.seconds) == set(here.ledger.seconds)


@pytest.mark.slow
def test_a_program_that_fails_ends_the_run_as_it_does_without_pipeline(workspace):
    words = []

    def fail(run):
        with pytest.raises(TrainingError) as error:
            run()
        words.append(str(error.value))

    (here, _), (there, _) = both(workspace, {"answer.py": FAILS}, fail)
    assert words[0] == words[1]
    assert story(there) == story(here)
    assert stage(there, "report").state == "done"


def test_a_run_that_ended_is_answered_without_a_pipeline(workspace):
    workspace.run()
    again = kfp_run(workspace)
    assert again.run.driver.kind == "run"
    assert not (workspace.repo / ".gangline" / "kfp").exists()


def test_a_part_of_the_line_is_wired_whole_or_ends_with_the_build(workspace):
    with pytest.raises(UsageError, match="use --until build"):
        kfp_run(workspace, until="train")
    assert kfp_run(workspace, until="build").run.state == "open"
    assert workspace.seen.stages == ["resolve", "build"]


def test_what_cannot_be_built_never_reaches_a_pipeline_and_has_its_report(workspace):
    repositories.commit(workspace.repo, {"line.toml": repositories.LINE + '[data]\ntext = ["repo:none/*.txt"]\n'})
    with pytest.raises(Exception, match="none/"):
        kfp_run(workspace)
    (record,) = workspace.records()
    assert stage(record, "report").state == "done"
    assert not (workspace.repo / ".gangline" / "kfp").exists()


@pytest.mark.slow
def test_a_gate_that_says_no_refuses_the_run(workspace):
    line = repositories.LINE + '[[gate.quality]]\nmetric = "loss"\nbetter = "lower"\nlimit = 0.5\n'
    repositories.commit(workspace.repo, {"line.toml": line})
    with pytest.raises(GateError, match=r"wanted at most 0\.5"):
        kfp_run(workspace)
    assert workspace.records()[0].run.verdict == "refused"


def test_tasks_see_little_of_the_environment(workspace, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    workspace.environ["FORGE_PASSWORD"] = "canary"
    own = Path(workspace.repo, "definitions-canary")
    root = workspace.repo
    (root / "pipelines").mkdir()
    (root / "components").mkdir()
    (root / "pipelines" / "__init__.py").touch()
    (root / "pipelines" / "train_line.py").write_text(
        "import os\nfrom pathlib import Path\n"
        f"def define(**_):\n    return lambda **_: Path({str(own)!r}).write_text(repr(dict(os.environ)))\n"
    )
    repositories.commit(root, {})
    with pytest.raises(TrainingError, match="ended before"):
        kfp_run(workspace)
    seen = own.read_text()
    assert "PATH" in seen
    assert "canary" not in seen.replace("definitions-canary", "")


@pytest.mark.slow
@pytest.mark.row("C6")
def test_a_task_that_is_lost_is_retried_and_adopts_the_gang(workspace, home):
    repositories.commit(workspace.repo, {"answer.py": SLOW})
    driver = start_driver(workspace)
    wait_for_training(workspace, home)
    (task,) = tasks_of(driver.pid, "train")
    os.kill(task, signal.SIGKILL)
    driver.wait(60)
    run = workspace.records()[0].run.id
    assert workspace.record(run).run.state == "open"
    (home / "go").touch()
    record = kfp_run(workspace)
    assert (record.run.id, record.run.verdict) == (run, "passed")
    assert stage(record, "train").tries == 2
    assert (home / "trained").read_text() == "x"


@pytest.mark.row("C6")
def test_a_second_task_of_a_stage_changes_nothing(workspace):
    record = workspace.run()
    for _ in range(3):
        again = run_stage(workspace.repo, "train", record.run.id, **workspace.where, kind="kfp", max_seconds=1)
        assert again.seq == record.seq


def test_a_task_does_not_try_the_store_that_its_run_has_tried(workspace, monkeypatch):
    run = workspace.run(until="gate").run.id
    tried = []
    monkeypatch.setattr(becoming, "probe", lambda store: tried.append(store.url) or probe(store))
    for name in ("prove", "publish"):
        run_stage(workspace.repo, name, run, **workspace.where, kind="kfp")
    assert tried == []
    assert workspace.run().run.verdict == "passed"
    assert tried == [workspace.store.url]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_driver_that_dies_takes_its_tasks_along_and_leaves_the_gang(workspace, home, number):
    repositories.commit(workspace.repo, {"answer.py": SLOW})
    driver = start_driver(workspace)
    wait_for_training(workspace, home)
    tasks = tasks_of(driver.pid, "train")
    os.kill(driver.pid, number)
    driver.wait(30)
    until(lambda: not any(alive(task) for task in tasks))
    (home / "go").touch()
    assert kfp_run(workspace).run.verdict == "passed"
    assert (home / "trained").read_text() == "x"


@pytest.mark.slow
def test_ctrl_c_stops_a_gang_of_this_machine_and_the_run_continues_later(workspace, home, tmp_path):
    repositories.commit(workspace.repo, {"answer.py": SLOW})
    driver = start_driver(workspace)
    until(lambda: '"event": "progress"' in (tmp_path / "driver.log").read_text())
    os.kill(driver.pid, signal.SIGINT)
    driver.wait(60)
    assert "Interrupted" in (tmp_path / "driver.log").read_text()
    assert workspace.records()[0].run.state == "open"
    (home / "go").touch()
    assert kfp_run(workspace).run.verdict == "passed"
    assert (home / "trained").read_text() == "xx"


def test_ctrl_c_leaves_a_gang_of_a_cluster_alone_and_says_so(workspace):
    record = workspace.run(until="build")
    assert isinstance(interruption(record), Interrupted)
    elsewhere = replace(record, run=replace(record.run, target="kubernetes"))
    assert isinstance(interruption(elsewhere), KeyboardInterrupt)


def test_what_a_task_reports_is_passed_on_once_and_never_by_half(tmp_path):
    class Remembers(SilentObserver):
        def __init__(self):
            self.said = []

        def stage_started(self, name):
            self.said.append(name)

        def stage_ended(self, name, info):
            self.said.append((name, info.state))

    observer = Remembers()
    listens = TaskEventReader(tmp_path, observer, [])
    listens.forward()
    tells = TaskEventWriter(tmp_path)
    tells.stage_started("plan")
    with (tmp_path / FILE).open("a") as file:
        file.write('{"event": "stage_started", "stage": "sub')
    listens.forward()
    listens.forward()
    assert observer.said == ["plan"]
    with (tmp_path / FILE).open("a") as file:
        file.write('mit"}\n')
    tells.stage_ended("submit", StageInfo(state="done"))
    tells.failed("train", IntegrityError("other gang"))
    listens.forward()
    assert observer.said == ["plan", "submit", ("submit", "done")]
    assert [(type(each), str(each)) for each in listens.failures] == [(IntegrityError, "other gang")]


PROGRAM = """\
import json, sys
from pathlib import Path
from gangline.cli.view.run_view import attended_view
from gangline.cli.view.run_view import JsonView
from gangline.kfp.driver import drive
from gangline.spec.config.site import Site
repo, environ = json.loads(sys.argv[1])
with attended_view(JsonView()) as view:
    drive(Path(repo), driving="kfp-local", site=Site(), environ=environ, observer=view)
"""


def start_driver(workspace) -> "subprocess.Popen[bytes]":
    repositories.settle_inventory(workspace.repo)
    asked = json.dumps([str(workspace.repo), workspace.environ])
    home = {"HOME": workspace.environ["HOME"]}
    workspace.environ |= {"HOME": home["HOME"]}
    with Path(home["HOME"], "driver.log").open("wb") as log:
        return subprocess.Popen([sys.executable, "-c", PROGRAM, asked], env=os.environ | home, stdout=log, stderr=log)


def tasks_of(driver: int, name: str) -> list[int]:
    """Processes that run component `name` below `driver`."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        command = procfs_text(folder / "cmdline")
        if "kfp.dsl.executor_main" in command and f"\0{name}\0" in command + "\0" and driver in ancestors(pid):
            found.append(pid)
    return [pid for pid in found if "python" in procfs_text(Path(f"/proc/{pid}/comm"))]


def ancestors(pid: int) -> list[int]:
    line = []
    while pid > 1:
        stat = procfs_text(Path(f"/proc/{pid}/stat"))
        if not stat:
            return line
        pid = int(stat.rsplit(")", 1)[1].split()[1])
        line.append(pid)
    return line


def procfs_text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def alive(pid: int) -> bool:
    return (
        procfs.start_time(pid) is not None and "Z" not in procfs_text(Path(f"/proc/{pid}/stat")).rsplit(")", 1)[1][:3]
    )


def wait_for_training(workspace, home: Path) -> None:
    """The gang is at work and its task follows it."""
    until((home / "trained").exists)
    until(lambda: stage(workspace.records()[0], "train").state == "running")


def until(holds) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
