"""T11 at full size: a node goes with its memory, again and again; the other one's copy has all of each step copied."""

import json
import shutil
from pathlib import Path

import pytest
from tests.faults.t.ranks import chance
from tests.train.gang import KEY, tiny_plan
from tests.train.slow_nodes import slow_nodes

from gangline.checkpoint.format.stored_tensors import stored_digests
from gangline.spec.plan import CheckpointPolicy, Recovery
from gangline.storage.folder.store import FolderStore

pytestmark = [pytest.mark.row("T11", full="100 lost nodes"), pytest.mark.slow, pytest.mark.timeout(1800)]
LOSSES, EVERY = 10, 5


@pytest.fixture
def nodes(tmp_path):
    plan = tiny_plan(
        "fsdp", steps=(LOSSES + 1) * 4 * EVERY, checkpoint=CheckpointPolicy(every=EVERY),
        recovery=Recovery(max_events=LOSSES),
    )  # fmt: skip
    with slow_nodes(tmp_path, plan) as gang:
        yield gang


@pytest.mark.parametrize("number", range(10))
def test_every_lost_node_is_restored_exactly(nodes, make_gang, seed, number):
    """100 losses in all."""
    dice, step = chance("T11", seed + number), 0
    for generation in range(LOSSES):
        step = max(step, generation * 4 * EVERY) + dice.randint(EVERY + 1, 3 * EVERY)
        nodes.wait_for_step(step, generation=generation)
        lose(nodes, 1)
        nodes.start(1)
    assert nodes.end().exit_code == 0
    resumed = [each for each in events(nodes, 0) if each["event"] == "resumed"]
    assert len(resumed) == LOSSES
    copied = {
        each["step"] for each in events(nodes, 0) if each["event"] == "saved" and each["copied_seconds"] is not None
    }
    stored = {each["step"] for each in resumed if each["source"] == "store"}
    assert len(stored) < LOSSES / 2
    assert not stored & copied  # the store alone has a step whose node was lost before its copy was complete
    one = make_gang()
    assert one.run(nodes.plan) == [0, 0], one.log()
    assert tensors(nodes.root / "store", nodes.plan) == tensors(one.home / "store", nodes.plan)


def lose(nodes, node):
    """The node's processes, and its memory."""
    lost = nodes.processes[node].pid
    nodes.kill(node)
    for folder in Path("/dev/shm").glob(f"gangline-copies-*-{lost}-*"):
        shutil.rmtree(folder)


def events(nodes, rank):
    lines = (nodes.home(rank) / "out" / "ranks" / f"{rank}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def tensors(root, plan):
    folder = f"{plan.run_prefix}/checkpoints/step-{plan.steps:08d}"
    return stored_digests(FolderStore(root), folder, KEY, optimizer=True)
