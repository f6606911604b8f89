"""A line broken on purpose, through the command line alone: what is said, the exit code, and nothing left running."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.train.gang import ROOT

from gangline.launch.local.folder import GangFolder
from gangline.launch.local.processes import living_keepers, rank_process
from gangline.procfs import with_variable

DEADLINE = 90.0
COMMAND = """
[project]
name = "broken"
command = ["python", "model.py"]
[train]
steps = 6
global_batch = 4
ranks = 2
"""
TASK = """
[project]
name = "broken"
task = "model:Tiny"
[optimizer.elementwise]
rule = "adamw"
lr = 1e-2
[train]
steps = 6
global_batch = 4
ranks = 2
[train.checkpoint]
every = 2
"""
SLEEPS = """
import os, time
print("hello from rank", os.environ["RANK"], flush=True)
time.sleep(float(os.environ.get("NAP", "600")))
"""
TINY = (ROOT / "tests" / "train" / "code" / "model.py").read_text("utf-8")


class Broken:
    """A model repository and the command line in it."""

    def __init__(self, folder: Path) -> None:
        self.repo = folder / "repo"
        self.environment = {
            **os.environ, "NO_COLOR": "1", "XDG_CONFIG_HOME": str(folder / "config"), "OMP_NUM_THREADS": "1",
            "GANGLINE_SITE": "", "COLUMNS": "200",
        }  # fmt: skip

    def commit(self, line: str, model: str) -> None:
        self.repo.mkdir()
        (self.repo / "line.toml").write_text(line, "ascii")
        (self.repo / "model.py").write_text(model, "utf-8")
        git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
        for command in (["init", "-q", "-b", "main"], ["add", "line.toml", "model.py"], ["commit", "-qm", "Broken"]):
            subprocess.run([*git, *command], cwd=self.repo, check=True)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "gangline", *arguments], cwd=self.repo, env=self.environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def call(self, *arguments: str) -> tuple[int, str]:
        """Exit code, and all that was printed."""
        process = self.start(*arguments)
        said, _ = process.communicate(timeout=DEADLINE)
        return process.returncode, said

    def left(self) -> list[int]:
        """Processes that some gang of this repository started."""
        homes = (GangFolder(home).inside for home in self.repo.glob(".gangline/gangs/*"))
        return [pid for home in homes for pid in with_variable("GANGLINE_HOME", str(home))]

    def keeper(self) -> GangFolder:
        """The one gang, once both of its ranks have spoken."""

        def spoken() -> GangFolder | None:
            for folder in map(GangFolder, self.repo.glob(".gangline/gangs/*")):
                if sum("hello" in log.read_text() for log in folder.inside.glob("logs/[01].log")) == 2:
                    return folder
            return None

        return until(spoken)

    def checkpoints(self) -> list[Path]:
        """Folders of the one run's, oldest first."""
        return sorted(self.repo.glob(".gangline/store/runs/*/*/*/gang/checkpoints/step-*"))


def until(look: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen in time")


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """A file system of `size` at `folder`."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"needs leave to mount a tmpfs: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def broken(tmp_path) -> Iterator[Broken]:
    broken = Broken(tmp_path)
    yield broken
    for pid in broken.left():
        os.kill(pid, signal.SIGKILL)


def strikes(what: str) -> str:
    return f'{TASK}[train.env]\nSTRIKE = "{what}"\n'


def test_all_mistakes_of_a_line_are_said_at_once(broken):
    wrong = COMMAND.replace("steps = 6", 'stepz = 6\nseed = "one"') + '[gate]\nreproducible = "maybe"\n'
    broken.commit(wrong, SLEEPS)
    code, said = broken.call("run")
    assert code == 10
    for key in ("train.stepz", "train.seed", "gate.reproducible", "did you mean train.steps"):
        assert key in said, said
    assert not (broken.repo / ".gangline" / "gangs").exists()


def test_a_full_disk_is_said_before_anything_starts(broken):
    broken.commit(COMMAND, SLEEPS)
    with small_disk(broken.repo / ".gangline" / "store", size="16k"):
        code, said = broken.call("run")
    assert code == 40
    assert "no space is left; free some" in said
    assert not broken.left()


@pytest.mark.slow
def test_a_program_that_declines_is_not_retried_and_leaves_no_child(broken):
    program = "import os, subprocess\nsubprocess.Popen(['sleep', '600'], start_new_session=True)\n"
    broken.commit(COMMAND, program + "os._exit(42 if os.environ['RANK'] == '1' else 0)\n")
    code, said = broken.call("run")
    assert code == 30
    assert "rank 1 ended with code 42; see logs/1.log" in said
    assert "restart 1:" not in said
    assert not broken.left()
    code, again = broken.call("run")
    assert code == 30
    assert "rank 1 ended with code 42" in again, "the same question has the same answer"


@pytest.mark.slow
def test_a_second_driver_learns_of_the_first_and_a_killed_one_is_replaced(broken):
    broken.environment["NAP"] = "600"
    broken.commit(COMMAND, SLEEPS)
    first = broken.start("run")
    ranks = pids_of_ranks(broken.keeper())
    code, said = broken.call("run")
    assert code == 20
    assert f"is driven by process {first.pid}" in said
    first.kill()
    first.communicate(timeout=DEADLINE)
    second = broken.start("run")
    until(lambda: "found" in (second.stdout.readline() if second.stdout else ""))
    assert pids_of_ranks(broken.keeper()) == ranks, "the gang was adopted, not started again"
    code, said = broken.call("cancel", "broken", "--now")
    assert code == 70
    second.communicate(timeout=DEADLINE)
    assert second.returncode == 70
    assert not broken.left()


@pytest.mark.slow
def test_a_killed_keeper_leaves_no_process_and_another_gang_continues(broken):
    broken.commit(COMMAND, SLEEPS)
    driver = broken.start("run", "--until", "train")
    folder = broken.keeper()
    ranks = set(pids_of_ranks(folder))
    os.kill(living_keepers(folder)[0].pid, signal.SIGKILL)
    until(lambda: len(list(broken.repo.glob(".gangline/gangs/**/keeper-0.json"))) == 2)
    assert not ranks & set(broken.left())
    assert broken.call("cancel", "broken", "--now")[0] == 70
    said, _ = driver.communicate(timeout=DEADLINE)
    assert driver.returncode == 70, said
    assert not broken.left()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strike", "code", "words"),
    [
        ("nan:0:4", 31, "NonFiniteError: step 4"),
        ("raise:1:4", 30, "rank 1 ended with code 30: ValueError: the user's own mistake; see logs/1.log"),
    ],
)
def test_a_failed_training_says_what_its_rank_said(broken, strike, code, words):
    broken.commit(strikes(strike), TINY)
    ended, said = broken.call("run")
    assert ended == code
    assert words in said
    assert words in broken.call("show")[1]
    assert not broken.left()


@pytest.mark.slow
def test_a_killed_rank_costs_a_restart_that_is_said(broken):
    broken.commit(strikes("kill:1:4"), TINY)
    code, said = broken.call("run", "--until", "train")
    assert code == 0, said
    assert said.count("restart 1: rank 1 ended by signal 9") == 1
    assert "6/6" in said
    assert not broken.left()


@pytest.mark.slow
def test_a_flipped_checkpoint_is_passed_over_and_with_none_left_the_run_ends(broken):
    slow = TINY.replace("self.step += 1", "self.step += 1\n            time.sleep(0.1)")
    broken.commit(TASK.replace("steps = 6", "steps = 4000"), slow)
    interrupt(broken, when=lambda: len(broken.checkpoints()) >= 3)
    newest, older = broken.checkpoints()[-1], broken.checkpoints()[-2]
    flip(newest)
    passed = f"step-{int(newest.name.removeprefix('step-')) + 20:08}"
    said = interrupt(broken, when=lambda: broken.checkpoints()[-1].name >= passed)
    assert f"checkpoints/{older.name}" in resumed(broken)
    assert newest.name not in resumed(broken)
    refusals = [line for line in said.splitlines() if "checkpoint refused, trying an older one" in line]
    assert len(refusals) == 1
    assert f"checkpoints/{newest.name}/" in refusals[0]
    for checkpoint in broken.checkpoints():
        flip(checkpoint)
    code, said = broken.call("run", "--until", "train")
    assert code == 50, said
    assert "IntegrityError" in said
    assert not broken.left()


def pids_of_ranks(folder: GangFolder) -> list[int]:
    """As this machine calls them."""
    return [rank_process(folder, rank).pid for rank in (0, 1)]


def interrupt(broken: Broken, when: Callable[[], bool]) -> str:
    """Train until `when` holds, then Ctrl-C: nothing is left running, the run stays open. What was printed."""
    driver = broken.start("run", "--until", "train")
    until(when)
    driver.send_signal(signal.SIGINT)
    said, _ = driver.communicate(timeout=DEADLINE)
    assert driver.returncode == 70, said
    assert not broken.left()
    return said


def resumed(broken: Broken) -> str:
    """Where rank 0 went on from, ever."""
    logs = [log.read_text() for log in broken.repo.glob(".gangline/gangs/**/out/ranks/0.jsonl")]
    events = [json.loads(line) for log in logs for line in log.splitlines(keepends=True) if line.endswith("\n")]
    return " ".join(event["checkpoint"] for event in events if event["event"] == "resumed")


def flip(checkpoint: Path) -> None:
    """One bit, in the middle of the largest file."""
    largest = max(checkpoint.glob("*.safetensors"), key=lambda file: file.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[len(data) // 2] ^= 1
    largest.write_bytes(data)
