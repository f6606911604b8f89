"""What a job's script does once its keepers have saved, with a Slurm that refuses, hangs or was faster."""

import json
import os
import subprocess
import sys

import pytest
from tests.contracts.launcher.gangs import STEPPER
from tests.launch.slurm.test_launcher import StubStand

from gangline.launch.slurm import commands, put_back
from gangline.launch.slurm.commands import SlurmCommands
from gangline.launch.slurm.put_back import PutBack, read_put_back

_SLURM = """#!{python}
import json, pathlib, sys, time
path = pathlib.Path({path!r})
slurm = json.loads(path.read_text())
name = sys.argv[0].rpartition("/")[2]
words = sys.argv[1:]
if words and words[0] in ("squeue", "scontrol"):
    name, *words = words
if name == "srun":
    sys.exit(143)
said = slurm[name].pop(0) if slurm[name] else "RUNNING" if name == "squeue" else ""
slurm["calls"].append([name, *words])
path.write_text(json.dumps(slurm))
if said.startswith("!"):
    print(said[1:], file=sys.stderr)
    sys.exit(1)
if said == "hangs":
    time.sleep(60)
if name == "squeue":
    print(f"4711|{{said}}|None|gpu|normal|N/A||")
"""
REFUSED = "!Requested operation is presently disabled for job 4711"
AWAY = "!Unable to contact slurm controller"


class Slurm:
    """Programs that answer in turn, then well; an answer with `!` is a refusal."""

    def __init__(self, folder):
        self.path, self.program = folder / "answers.json", folder / "bin" / "squeue"
        self.program.parent.mkdir()
        self.answer()
        for name in ("squeue", "scontrol", "srun"):
            program = folder / "bin" / name
            program.write_text(_SLURM.format(python=sys.executable, path=str(self.path)))
            program.chmod(0o755)

    def answer(self, *, squeue=(), scontrol=()):
        self.path.write_text(json.dumps({"squeue": squeue, "scontrol": scontrol, "calls": []}))

    @property
    def requeues(self):
        calls = json.loads(self.path.read_text())["calls"]
        return [call for call in calls if call[:2] == ["scontrol", "requeue"]]


@pytest.fixture
def slurm(tmp_path):
    return Slurm(tmp_path)


@pytest.fixture
def stand(tmp_path):
    made = StubStand(tmp_path)
    made.launcher.submit(made.podset(STEPPER))
    return made


@pytest.fixture
def asked(slurm, stand, monkeypatch):
    """What is found, for these answers of Slurm."""
    monkeypatch.setattr(commands, "CALL_SECONDS", 1.0)
    monkeypatch.setattr(put_back, "_LONGEST_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(put_back, "_FIRST_PAUSE_SECONDS", 0.05)
    stand.begin("a1")

    def ask(*, lives=3, seconds=30.0, **answers):
        slurm.answer(**answers)
        return put_back.put_back(SlurmCommands((str(slurm.program),)), stand.folder, lives=lives, seconds=seconds)

    return ask


@pytest.mark.parametrize("once", [REFUSED, AWAY, "hangs"])
def test_requeue_that_fails_once_is_asked_for_again(once, asked, slurm):
    assert asked(scontrol=[once]) == PutBack(life=1)
    assert len(slurm.requeues) == 2


@pytest.mark.parametrize("state", [AWAY, "hangs"])
def test_look_at_the_job_that_fails_once_is_repeated(state, asked, slurm):
    assert asked(squeue=[state]) == PutBack(life=1)
    assert len(slurm.requeues) == 1


def test_job_that_is_being_signalled_is_put_back(asked, slurm):
    """Slurm's word while the signal of a time limit is on its way to some servers."""
    assert asked(squeue=["SIGNALING"]) == PutBack(life=1)
    assert len(slurm.requeues) == 1


@pytest.mark.parametrize("state", ["COMPLETING", "CANCELLED", "TIMEOUT"])
def test_job_that_slurm_ends_is_not_put_back(state, asked, slurm):
    assert asked(squeue=[state]).hindered_by == f"Slurm was ending it already: {state}"
    assert slurm.requeues == []


def test_requeue_whose_answer_is_lost_is_found_done(asked, slurm):
    assert asked(squeue=["RUNNING", "COMPLETING"], scontrol=[AWAY]) == PutBack(life=1)
    assert asked(squeue=["RUNNING", "PENDING"], scontrol=["hangs"]) == PutBack(life=1)
    assert len(slurm.requeues) == 1


def test_last_life_and_a_cancelled_one_are_not_put_back(asked, slurm, stand):
    assert asked(lives=1).hindered_by == "this was life 1 of 1, as slurm.lives says"
    stand.folder.write("cancel.json", {"reason": "no time", "save": True})
    assert asked(lives=2).hindered_by == "it was cancelled"
    assert slurm.requeues == []


def test_refusal_without_end_is_said_by_the_end_of_the_gang(asked, stand):
    found = asked(scontrol=[REFUSED] * 99, seconds=0.3)
    assert "Requested operation is presently disabled" in found.hindered_by
    assert read_put_back(stand.folder) == found, "also if Slurm ends the job meanwhile"
    stand.end(0, 143, saved_step=7)
    stand.change(state="FAILED")
    end = stand.launcher.collect("run-1")
    assert end.retry == "free"
    assert end.reason.startswith("said; job 4711 did not go back into the queue: Slurm refuses scontrol: Requested op")


def test_note_of_an_earlier_life_says_nothing_of_this_one(asked, stand):
    stand.folder.write("put-back.json", asked())
    stand.begin("a1")
    assert read_put_back(stand.folder) is None
    stand.end(0, 143, saved_step=7)
    stand.change(state="PREEMPTED")
    assert stand.launcher.collect("run-1").reason == "said; job 4711 ended as PREEMPTED"


def test_script_asks_again_and_ends_with_the_code_of_its_keepers(slurm, stand):
    script = stand.folder.home / "job.sbatch"
    script.write_text(script.read_text().replace("sleep 60", "echo put back"))
    programs = f"{slurm.program.parent}:{os.environ['PATH']}"
    environ = {"PATH": programs, "HOME": str(stand.root), "SLURM_JOB_ID": "4711", "SLURM_JOB_NODELIST": "a1"}
    slurm.answer(scontrol=[REFUSED])
    done = subprocess.run(["bash", str(script)], env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, len(slurm.requeues)) == (143, "put back\n", 2), done.stderr
    slurm.answer(squeue=["COMPLETING"])
    done = subprocess.run(["bash", str(script)], env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (143, "")
    assert "the job stays out of the queue: Slurm was ending it already: COMPLETING" in done.stderr
    assert read_put_back(stand.folder) == PutBack(life=2, hindered_by="Slurm was ending it already: COMPLETING")
