"""A gang over two nodes that loses one with its memory goes on from what the other keeps of it, bit for bit."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.launch.local.machine import Machine
from tests.train.gang import KEY, tiny_plan
from tests.train.slow_nodes import slow_nodes

from gangline.checkpoint.format.stored_tensors import stored_digests
from gangline.errors import TrainingError
from gangline.keeper.main import copy_folder
from gangline.spec.plan import CheckpointPolicy, Recovery
from gangline.storage.folder.store import FolderStore


@pytest.fixture
def machine(tmp_path):
    machine = Machine(tmp_path)
    yield machine
    machine.close()


@pytest.mark.long
def test_killed_rank_resumes_from_the_memory_of_its_nodes(machine, make_gang):
    plan = tiny_plan("fsdp", checkpoint=CheckpointPolicy(every=3, asynchronous=False))  # saved before the strike
    end = machine.train(plan, STRIKE="kill:1:5")
    assert (end.exit_code, end.restarts) == (0, 1), end
    [resumed] = [each for each in events(machine, plan) if each["event"] == "resumed"]
    assert (resumed["source"], resumed["peer_bytes"]) == ("copy", 0)
    one = make_gang()
    assert one.run(plan) == [0, 0], one.log()
    assert machine.losses(plan) == one.result().jobs[0].losses


@pytest.mark.long
def test_training_whose_last_save_is_in_memory_alone_is_not_done(machine):
    """Where the store takes no file of it, as one that is full, the next generation has nothing left to train."""
    policy = CheckpointPolicy(every=3, max_unsaved_seconds=1.0)
    plan = tiny_plan("fsdp", checkpoint=policy, recovery=Recovery(max_events=1))
    machine.store.put(f"{plan.run_prefix}/checkpoints/step-{plan.steps:08d}", b"in the way")
    end = machine.train(plan)
    assert end.exit_code == TrainingError.exit_code, end
    assert "ended with code 40: StorageError" in end.reason
    assert [each["source"] for each in events(machine, plan) if each["event"] == "resumed"][:1] == ["copy"]


def events(machine, plan):
    text = machine.store.get(f"{plan.run_prefix}/ranks/0.jsonl").data.decode()
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def nodes(tmp_path):
    plan = tiny_plan("fsdp", steps=24, checkpoint=CheckpointPolicy(every=5, asynchronous=False))
    with slow_nodes(tmp_path, plan) as gang:
        yield gang


@pytest.mark.row("T11")
@pytest.mark.long
def test_node_lost_with_its_memory_is_restored_from_the_other_one(nodes, make_gang):
    nodes.wait_for_step(12)
    lost = nodes.processes[1].pid
    nodes.kill(1)
    for folder in Path("/dev/shm").glob(f"gangline-copies-*-{lost}-*"):
        shutil.rmtree(folder)
    nodes.start(1)
    assert nodes.end().exit_code == 0
    said = [json.loads(line) for line in (nodes.home(1) / "out" / "ranks" / "1.jsonl").read_text().splitlines()]
    [resumed] = [each for each in said if each["event"] == "resumed"]
    assert (resumed["source"], resumed["step"] >= 10) == ("copy", True)
    assert resumed["peer_bytes"] > 0
    one = make_gang()
    assert one.run(nodes.plan) == [0, 0], one.log()
    digests = [tensors(root, nodes.plan) for root in (nodes.root / "store", one.home / "store")]
    assert digests[0] == digests[1]


def tensors(root, plan):
    folder = f"{plan.run_prefix}/checkpoints/step-{plan.steps:08d}"
    return stored_digests(FolderStore(root), folder, KEY, optimizer=True)


def test_copy_folder_goes_with_its_keeper_and_what_a_killed_one_left_goes_later(tmp_path):
    program = (
        f"import sys, time; from gangline.keeper.main import copy_folder; from pathlib import Path\n"
        f"with copy_folder(Path({str(tmp_path)!r})) as folder: print(folder, flush=True); time.sleep(60)"
    )
    other = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    left = Path(other.stdout.readline().strip())
    with copy_folder(tmp_path) as ours:
        assert left.is_dir()
        assert ours.is_dir()
    assert not ours.exists()
    other.send_signal(signal.SIGKILL)
    other.wait()
    other.stdout.close()
    with copy_folder(tmp_path):
        assert not left.exists()


def test_without_memory_there_is_no_folder(tmp_path):
    with copy_folder(tmp_path / "absent") as folder:
        assert folder is None
