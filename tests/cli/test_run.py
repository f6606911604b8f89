"""`gangline run` as a process: how it ends by itself, by Ctrl-C, by SIGTERM, in the background."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangline.errors import CancelledError
from gangline.launch.local.folder import GangFolder
from gangline.launch.local.processes import kill_gang, rank_process

LINE = """
[project]
name = "toy"
command = ["python", "toy.py"]
[train]
steps = 2
global_batch = 2
strategy = "ddp"
ranks = 2
[train.env]
TOY_SECONDS = "{seconds}"
"""
PROGRAM = """
import os, sys, time
print("hello from rank", os.environ["RANK"], flush=True)
end = time.monotonic() + float(os.environ["TOY_SECONDS"])
while time.monotonic() < end:
    time.sleep(0.05)
"""
DEADLINE = 60.0


class Toy:
    """A model repository, whose program only sleeps unless another is given, and the command line in it."""

    def __init__(self, folder: Path, *, seconds: float, line: str = LINE, program: str = PROGRAM) -> None:
        self.folder = folder
        self.environment = {
            **os.environ, "NO_COLOR": "1", "XDG_CONFIG_HOME": str(folder / "config"), "OMP_NUM_THREADS": "1",
            "GANGLINE_SITE": "",
        }  # fmt: skip
        self.repo = folder / "repo"
        self.repo.mkdir()
        (self.repo / "line.toml").write_text(line.format(seconds=seconds))
        (self.repo / "toy.py").write_text(program)
        git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
        for command in (["init", "-q", "-b", "main"], ["add", "line.toml", "toy.py"], ["commit", "-qm", "A toy"]):
            subprocess.run([*git, *command], cwd=self.repo, check=True)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "gangline", *arguments], cwd=self.repo, env=self.environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def call(self, *arguments: str) -> tuple[int, str, str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=DEADLINE)
        return process.returncode, out, err

    def newest(self) -> dict[str, object]:
        return json.loads(self.call("list", "--json")[1])[0]

    def wait_for_ranks(self) -> list[int]:
        """Process ids of the ranks of the one gang, once they live."""
        deadline = time.monotonic() + DEADLINE
        while time.monotonic() < deadline:
            for folder in map(GangFolder, self.repo.glob(".gangline/gangs/*")):
                ranks = [found.pid for rank in (0, 1) if (found := rank_process(folder, rank))]
                logs = [log.read_text() for log in folder.inside.glob("logs/*.log")]
                if len(ranks) == 2 and sum("hello" in log for log in logs) == 2:
                    return ranks
            time.sleep(0.05)
        raise AssertionError("the ranks did not start")


@pytest.fixture
def toy(tmp_path) -> Iterator[Toy]:
    toy = Toy(tmp_path, seconds=600)
    yield toy
    for folder in map(GangFolder, toy.repo.glob(".gangline/gangs/*")):
        kill_gang(folder)


def living(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + DEADLINE
    while any(map(living, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(living, pids))


def test_a_run_says_a_line_a_stage_and_its_logs_name_the_rank(tmp_path):
    toy = Toy(tmp_path, seconds=0)
    code, out, err = toy.call("run", "--until", "train")
    assert code == 0, err
    stages = [line.split()[0] for line in out.splitlines() if not line.startswith("note")]
    assert stages[:4] == ["resolve", "build", "plan", "submit"]
    assert "\x1b" not in out
    code, out, _ = toy.call("logs", "--all")
    assert "r00│ hello from rank 0" in out
    assert "r01│ hello from rank 1" in out
    code, out, _ = toy.call("run", "--until", "train", "--json")
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["event"] for event in events] == ["run_started", "run_ended"]


def test_ctrl_c_stops_the_gang_and_says_how_to_continue(toy):
    driver = toy.start("run")
    ranks = toy.wait_for_ranks()
    driver.send_signal(signal.SIGINT)
    out, err = driver.communicate(timeout=DEADLINE)
    assert driver.returncode == CancelledError.exit_code
    assert "gangline run resumes" in err
    assert "Traceback" not in out + err
    wait_until_gone(ranks)
    assert toy.newest()["verdict"] == "open"


@pytest.mark.slow
def test_sigterm_leaves_the_gang_running_and_cancel_stops_it(toy):
    driver = toy.start("run")
    ranks = toy.wait_for_ranks()
    driver.send_signal(signal.SIGTERM)
    _, err = driver.communicate(timeout=DEADLINE)
    assert driver.returncode == 143
    run = toy.newest()["run"]
    assert f"gangline run resumes {run}" in err
    assert all(map(living, ranks))
    code, out, err = toy.call("cancel", str(run)[:12], "--reason", "enough")
    assert code == CancelledError.exit_code
    assert "nothing of it is left running" in out
    assert "next: gangline run --again" in err
    wait_until_gone(ranks)
    code, out, _ = toy.call("cancel", str(run))
    assert code == CancelledError.exit_code


@pytest.mark.slow
def test_a_detached_run_has_a_name_and_is_followed_by_others(toy):
    code, out, err = toy.call("run", "--detach")
    assert code == 0, err
    run = out.split()[0]
    ranks = toy.wait_for_ranks()
    watcher = toy.start("follow", run)
    code, out, _ = toy.call("cancel", run, "--now")
    assert code == CancelledError.exit_code
    wait_until_gone(ranks)
    out, err = watcher.communicate(timeout=DEADLINE)
    assert watcher.returncode == CancelledError.exit_code, err
    assert out.splitlines()[-1].lstrip().startswith(("CANCELLED", "next"))


def test_a_detached_run_that_cannot_start_says_why(toy):
    (toy.repo / "line.toml").write_text("[project]\nname = 3\n")
    code, _, err = toy.call("run", "--detach")
    assert code == 10
    assert "project.task" in err
