"""Callbacks for transformers, lightning and accelerate, on the real libraries: two gloo ranks, killed and stopped."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.forks.server import fork_server
from tests.ports import free_port
from tests.train.gang import Gang, Generation, _be_program, make_plan

from gangline.spec.plan import CheckpointPolicy, ProgramSpec

CODE = Path(__file__).parent / "code"
METRIC = {"transformers": "eval_loss", "lightning": "val_loss", "accelerate": "eval_loss"}
PLAN = make_plan("ddp", program=ProgramSpec(command=("python", "train.py")), checkpoint=CheckpointPolicy(every=2))

MODULES = [f"gangline.integrations.{library}" for library in METRIC if importlib.util.find_spec(library)]
DEAD = 9

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(params=METRIC)
def library(request):
    if importlib.util.find_spec(request.param) is None:
        pytest.skip(f"the extra gangline[{request.param}] is not installed")
    return request.param


@pytest.fixture
def gang(library, tmp_path):
    code = tmp_path / "gang" / "code"
    code.mkdir(parents=True)
    (code / "train.py").write_bytes((CODE / library / "train.py").read_bytes())
    return Gang(tmp_path / "gang", None, code)


def start(ranks):
    """Ranks forked from a server that has the libraries; as a keeper does, the others end with one that died."""
    context = fork_server(*MODULES)
    processes = {each.rank: context.Process(target=_be_program, args=(each,)) for each in ranks}
    for process in processes.values():
        process.start()

    def codes():
        ended = {rank: process.exitcode for rank, process in processes.items() if process.exitcode is not None}
        if DEAD in ended.values():
            for process in processes.values():
                process.kill()
        return ended

    return codes


def run(gang, **environ):
    """Exit codes of both ranks, whose library makes its own process group at a port that is free."""
    return Generation(gang, PLAN, {"MASTER_PORT": str(free_port()), **environ}, start=start).wait()


def reported(text):
    return json.loads(next(line for line in text.splitlines() if line.startswith("losses")).removeprefix("losses"))


@pytest.mark.long
def test_losses_are_those_of_the_library_alone_through_a_kill_and_a_stop(gang, library):
    assert run(gang, PLAIN="1") == [0, 0], gang.log()
    plain = reported(gang.log())
    assert len(plain) == 6
    gang.generation = 0
    assert DEAD in run(gang, DIE="4"), "no rank died"
    assert run(gang) == [0, 0], gang.log()
    assert [each["step"] for each in gang.events(0, "resumed")] == [2]
    by_step = {each["step"]: each["loss"] for each in gang.metrics()}
    assert [by_step[step] for step in range(1, 7)] == pytest.approx(plain, rel=1e-6)
    assert gang.result().jobs[0].metrics.keys() == {METRIC[library]}
    assert [each["step"] for each in gang.events(0, "saved")] == [2, 4, 6]


@pytest.mark.long
def test_all_ranks_leave_after_the_step_in_which_one_was_asked_to_stop_and_it_is_saved(gang):
    assert run(gang, STOP="3") == [143, 143], gang.log()
    assert [each["step"] for each in gang.events(0, "saved")] == [2, 3]
    assert run(gang) == [0, 0], gang.log()
    assert [each["step"] for each in gang.events(0, "resumed")] == [3]
    assert gang.result().final_step == 6


@pytest.mark.slow
def test_outside_a_gang_the_program_runs_as_it_is(library, tmp_path):
    environ = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    with_and_without = [alone(library, tmp_path, environ | {"PLAIN": plain}) for plain in ("", "1")]
    assert with_and_without[0] == with_and_without[1]
    assert len(with_and_without[0]) == 6


def alone(library, folder, environ):
    done = subprocess.run(
        [sys.executable, str(CODE / library / "train.py")], cwd=folder, capture_output=True, text=True, check=False,
        env=environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return reported(done.stdout)
