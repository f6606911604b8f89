"""Programs of any framework: outside a gang, in a gang, stopped, with saves that are damaged; and what torch costs."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.ports import free_port
from tests.train.gang import KEY, make_plan

from gangline.checkpoint.format.manifest import BLOCK_BYTES
from gangline.errors import IntegrityError, UsageError
from gangline.keeper.rank_environment import framework_environ
from gangline.spec.codec import from_json
from gangline.spec.gang.status import GangResult
from gangline.spec.plan import CheckpointPolicy
from gangline.storage.open import open_store
from gangline.train.api.program import ENDING_SECONDS, Program
from gangline.train.api.program_saves import ProgramSaves
from gangline.train.heartbeat import peek


@pytest.fixture
def in_gang(tmp_path, monkeypatch):
    """Function that makes this process a rank of a gang of two; its home."""
    plan = make_plan("ddp", steps=6, checkpoint=CheckpointPolicy(every=2))
    (tmp_path / "plan.json").write_bytes(plan.to_json())
    (tmp_path / "key").write_bytes(KEY)
    handler = signal.getsignal(signal.SIGTERM)

    def be(rank, generation=0):
        for name, value in {
            "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": 1, "GANGLINE_RUN": plan.run, "GANGLINE_GANG": "g", "GANGLINE_HOME": tmp_path,
            "GANGLINE_PLAN": tmp_path / "plan.json", "GANGLINE_CODE": tmp_path, "GANGLINE_KEY_FILE": tmp_path / "key",
            "GANGLINE_STORE": f"file:{tmp_path / 'store'}", "GANGLINE_GENERATION": generation,
            "GANGLINE_HEARTBEAT": tmp_path / f"beat-{rank}",
        }.items():  # fmt: skip
            monkeypatch.setenv(name, str(value))
        return tmp_path

    yield be
    signal.signal(signal.SIGTERM, handler)


def test_generation_has_the_interval_of_its_keeper(in_gang, monkeypatch):
    in_gang(1)
    with Program() as program:
        assert program.save_every == 2
    monkeypatch.setenv("GANGLINE_SAVE_EVERY", "3")
    with Program() as program:
        assert program.save_every == 3


def train(program, until=None):
    while program.has_more and program.step_number != until:
        program.step(loss=1 / (program.step_number + 1))
        if program.save_due:
            program.save({"state.txt": b"%d" % program.step_number})


def fail_after(step):
    with Program() as program:
        train(program, until=step)
        raise ValueError("its own mistake")


def end_with(code):
    with Program():
        sys.exit(code)


@pytest.mark.parametrize(("code", "told"), [(0, 0), (None, 0), (70, 30), (143, 30), ("no data", 30)])
def test_program_that_exits_by_itself_writes_no_code_of_gangline(in_gang, code, told):
    home = in_gang(0)
    with pytest.raises(SystemExit):
        end_with(code)
    events = [json.loads(line) for line in (home / "out" / "ranks" / "0.jsonl").read_text().splitlines()]
    assert [each["exit"] for each in events if each["event"] == "done"] == [told]


def obey_sigterm():
    with Program() as program:
        assert not program.stop_asked
        os.kill(os.getpid(), signal.SIGTERM)
        assert program.stop_asked
        program.leave()


def leave_unasked():
    with Program() as program:
        program.world_size = 1
        program.leave()


def test_outside_a_gang_it_is_a_gang_of_one_that_saves_nothing():
    with Program(steps=3) as program:
        assert program.resume() is None
        train(program)
    assert (program.rank, program.world_size, program.step_number) == (0, 1, 3)


def test_the_next_generation_continues_from_the_newest_save(in_gang):
    home = in_gang(0)
    with pytest.raises(ValueError, match="its own mistake"):
        fail_after(5)
    in_gang(0, generation=1)
    with Program() as program:
        folder = program.resume()
        assert (program.step_number, (folder / "state.txt").read_text()) == (4, "4")
        train(program)
        program.report(eval_loss=0.5)
    result = from_json(GangResult, (home / "out" / "result.json").read_bytes())
    assert (result.final_step, result.jobs[0].metrics, len(result.jobs[0].losses)) == (6, {"eval_loss": 0.5}, 6)
    events = [json.loads(line) for line in (home / "out" / "ranks" / "0.jsonl").read_text().splitlines()]
    assert [each["reason"] for each in events if each["event"] == "done"] == ["ValueError: its own mistake", "finished"]


def test_losses_and_metrics_may_be_tensors_and_numbers_of_libraries(in_gang):
    home = in_gang(0)
    with Program() as program:
        program.step(loss=(torch.ones(1, requires_grad=True) * 2).sum(), learning_rate=np.float32(0.5))
        with pytest.raises(UsageError, match=r"program\.step: loss: wanted one number, found Tensor of shape \(2,\)"):
            program.step(loss=torch.ones(2))
        program.report(eval_loss=torch.tensor(0.25), error=np.float32(0.5))
    line = json.loads((home / "out" / "metrics.jsonl").read_text())
    assert (line["step"], line["loss"], line["learning_rate"]) == (1, 2.0, 0.5), "the refused step does not count"
    result = from_json(GangResult, (home / "out" / "result.json").read_bytes())
    assert result.jobs[0].metrics == {"eval_loss": 0.25, "error": 0.5}


SCRIPT = """
import sys
from gangline.train import Program

program = Program().start()
for number in range(6):
    program.step(loss=1 / (number + 1))
{end}
program.report(eval_loss=0.5)
"""


@pytest.mark.parametrize(
    ("end", "code", "metrics", "said"),
    [
        ("pass", 0, {"eval_loss": 0.5}, []),
        ("raise ValueError('its own mistake')", 1, None, ["ValueError: its own mistake"]),
        ("program.report(bound=float('-inf'))", 0, {"eval_loss": 0.5}, []),
        ("program.stop_asked = True; program.leave()", 143, None, ["stopped as asked"]),
        ("sys.exit(70)", 70, {}, []),
    ],
)
def test_a_script_joins_without_a_block_until_its_interpreter_ends(in_gang, end, code, metrics, said):
    home = in_gang(0)
    ended = subprocess.run([sys.executable, "-c", SCRIPT.format(end=end)], capture_output=True, text=True, check=False)
    assert ended.returncode == code, ended.stderr
    assert ("its own mistake" in ended.stderr) == ("its own mistake" in end)
    result = home / "out" / "result.json"
    assert result.exists() == (metrics is not None)
    if metrics:
        (job,) = from_json(GangResult, result.read_bytes()).jobs
        assert (job.metrics, job.not_finite) == (metrics, {"bound": "-inf"} if "inf" in end else {})
    events = [json.loads(line) for line in (home / "out" / "ranks" / "0.jsonl").read_text().splitlines()]
    assert [each["reason"] for each in events if each["event"] == "done"] == said
    assert [each["step"] for each in events if each["event"] == "step"] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(("steps", "expects"), [(5, False), (6, True)])
def test_after_its_last_step_a_program_may_be_silent(in_gang, steps, expects):
    """It writes its results, or waits for the rank that does."""
    home = in_gang(0)
    script = SCRIPT.format(end="").replace("range(6)", f"range({steps})")
    subprocess.run([sys.executable, "-c", script], check=True)
    beat = peek(home / "beat-0")
    assert beat.step == steps
    assert (beat.expect_until - beat.mono > ENDING_SECONDS - 60) == expects


def test_other_ranks_save_and_report_no_result(in_gang):
    home = in_gang(1)
    with Program() as program:
        train(program)
    assert program.resume() is None
    assert not (home / "out" / "result.json").exists()


def test_its_series_are_served_where_the_launcher_gave_a_port(in_gang, monkeypatch):
    port = free_port()
    in_gang(0)
    monkeypatch.setenv("GANGLINE_METRICS_PORT", str(port))
    with Program() as program:
        program.step(loss=0.25)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
    assert re.search(r"^gangline_train_loss\{[^}]*\} 0.25$", text, re.MULTILINE), text


def test_a_damaged_save_is_passed_over_by_name_for_the_one_before(in_gang):
    home = in_gang(0)
    with Program() as program:
        train(program)
    (newest,) = (home / "store").rglob("step-00000006/g0000-state.txt")
    newest.write_bytes(b"7")
    with Program() as program:
        assert (program.resume() / "state.txt").read_text() == "4"
        assert program.step_number == 4
    events = [json.loads(line) for line in (home / "out" / "ranks" / "0.jsonl").read_text().splitlines()]
    (refused,) = [each for each in events if each["event"] == "checkpoint_refused"]
    assert refused["file"].endswith("step-00000006/g0000-state.txt")
    for each in (home / "store").rglob("g0000-state.txt"):
        each.write_bytes(b"")
    with pytest.raises(IntegrityError, match="none of 3 saves"), Program() as program:
        program.resume()


def test_a_program_that_is_asked_to_stop_leaves_with_143(in_gang):
    in_gang(0)
    with pytest.raises(SystemExit) as ended:
        obey_sigterm()
    assert ended.value.code == 143
    with pytest.raises(UsageError, match="asked to stop"):
        leave_unasked()


@pytest.mark.parametrize("name", ["../state", "a/b", "", "..", 3])
def test_a_save_takes_plain_names_only(tmp_path, name):
    saves = ProgramSaves(
        open_store(f"file:{tmp_path}"), "p", run="r", plan_digest="0" * 64, generation=0, key=KEY, keep=2
    )
    with pytest.raises(UsageError, match="plain file name"):
        saves.save(1, {name: b""})


def test_torch_is_not_imported():
    code = "import sys; from gangline.train import Program\nwith Program(): pass\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_workers_have_ports_of_their_own_that_change_with_the_generation():
    def of(rank, port):
        return framework_environ(
            rank=rank, nodes=(0,), per_node=2, master_addr="127.0.0.1", master_port=port, on_loopback=True
        )

    first, second = (json.loads(of(rank, 40_001)["TF_CONFIG"]) for rank in (0, 1))
    assert first["cluster"] == second["cluster"]
    assert (first["task"]["index"], second["task"]["index"]) == (0, 1)
    addresses = {*first["cluster"]["worker"], of(0, 40_001)["JAX_COORDINATOR_ADDRESS"]}
    assert len(addresses) == 3
    assert addresses.isdisjoint(json.loads(of(0, 40_002)["TF_CONFIG"])["cluster"]["worker"])


@pytest.mark.parametrize("master", ["gang-0.gang", "gang-node-0-0.gang"])
def test_pods_are_found_by_their_numbers(master):
    environ = framework_environ(
        rank=3, nodes=(0, 2), per_node=2, master_addr=master, master_port=29500, on_loopback=False
    )
    other = master.replace("-0.", "-2.")
    wanted = [f"{master}:29600", f"{master}:29601", f"{other}:29600", f"{other}:29601"]
    assert json.loads(environ["TF_CONFIG"]) == {"cluster": {"worker": wanted}, "task": {"type": "worker", "index": 3}}
    assert environ["JAX_COORDINATOR_ADDRESS"] == f"{master}:29599"


def test_folders_and_files_on_disk_come_back_as_they_were(in_gang, tmp_path):
    home = in_gang(0)
    large = os.urandom(BLOCK_BYTES + 5)
    tree = tmp_path / "out" / "checkpoint-2"
    (tree / "deep").mkdir(parents=True)
    for path, data in {"deep/weights.bin": large, "empty": b"", "config.json": b"{}"}.items():
        (tree / path).write_bytes(data)
    (tree / "link").symlink_to("/etc/hostname")
    with Program() as program:
        program.step(loss=1.0)
        program.step(loss=1.0)
        program.save({"model": tree, "log.csv": str(tree / "config.json"), "note": b"by hand"})
    in_gang(0, generation=1)
    (home / "restored" / "0").mkdir(parents=True)
    (home / "restored" / "0" / "stale").touch()
    with Program() as program:
        folder = program.resume()
        assert program.step_number == 2
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert found == {
        "model/deep/weights.bin": large, "model/empty": b"", "model/config.json": b"{}", "log.csv": b"{}",
        "note": b"by hand",
    }  # fmt: skip


def test_the_curve_up_to_a_save_outlives_the_process(in_gang):
    home = in_gang(0)
    with Program() as program:
        program.step(loss=1.0)
        program.step(loss=0.5)
        program.save({"state.txt": b"2"})
        lines = (home / "out" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2]


@pytest.mark.parametrize("where", ["gang", "outside"])
@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"paths.json": b""}, "written by gangline"),
        ({"gone": Path("/nowhere/at/all")}, "found nothing at /nowhere/at/all"),
        ({"gone": "nowhere/at/all"}, "found nothing at nowhere/at/all"),
        ({"state": [1.0]}, r"save\('state'\): wanted bytes or a path, found list"),
        ({"a/b": b""}, "plain file name"),
        ({}, "at least one file"),
    ],
)
def test_what_cannot_be_saved_is_refused(in_gang, files, reason, where):
    if where == "gang":
        in_gang(0)
    with Program() as program, pytest.raises(UsageError, match=reason):
        program.save(files)
