"""Ranks stand in the order of the plan, whatever the order in which nodes start, come back or are replaced."""

import os
import subprocess
import sys

import pytest
from tests.keeper.coordination.nodes import poll
from tests.ports import free_port

TELL = """
import torch.distributed as dist
dist.init_process_group("gloo")
found = [None] * dist.get_world_size()
dist.all_gather_object(found, os.environ["SERVER"])
print("order", generation, *found, flush=True)
heartbeat.beat(0, "train")
while generation < int(os.environ["LAST"]): time.sleep(0.02)
"""


def orders(gang, rank):
    """Servers in rank order, by generation, as a rank saw them."""
    lines = [line.split() for line in gang.log(rank).splitlines() if line.startswith("order")]
    return {int(words[1]): words[2:] for words in lines}


def start_in_order(nodes, order, *, last):
    gang = nodes(TELL, num_nodes=len(order), absent=range(len(order)), LAST=str(last), OMP_NUM_THREADS="1")
    for node in order:
        gang.start(node, SERVER=f"s{node}")
        poll(lambda node=node: gang.status(node)["state"] != "absent")  # it is there before the next one starts
    gang.wait_for_step()
    return gang


@pytest.mark.long
def test_ranks_keep_their_places_when_nodes_start_in_another_order_and_one_is_replaced(nodes):
    gang = start_in_order(nodes, [1, 0], last=1)
    gang.kill(1)
    gang.start(1, SERVER="s9")
    assert [gang.end(node).exit_code for node in range(2)] == [0, 0]
    assert orders(gang, 0) == {0: ["s0", "s1"], 1: ["s0", "s9"]}
    assert orders(gang, 1) == {1: ["s0", "s9"]}


@pytest.mark.long
def test_ranks_of_three_nodes_have_the_places_of_the_plan_though_the_last_one_joins_first(nodes):
    gang = start_in_order(nodes, [2, 1, 0], last=0)
    assert [gang.end(node).exit_code for node in range(3)] == [0, 0, 0]
    assert orders(gang, 0) == {0: ["s0", "s1", "s2"]}


@pytest.mark.slow
def test_ranks_of_eight_nodes_keep_their_places_over_two_restarts(nodes):
    gang = start_in_order(nodes, [5, 2, 7, 0, 3, 6, 1, 4], last=2)
    for generation, node in ((1, 3), (2, 6)):
        gang.kill(node)
        gang.start(node, SERVER=f"s{node}")
        gang.wait_for_step(generation=generation)
    assert {gang.end(node).exit_code for node in range(8)} == {0}
    assert orders(gang, 0) == {each: [f"s{node}" for node in range(8)] for each in range(3)}


@pytest.mark.slow
def test_rendezvous_of_torchrun_keeps_no_order(tmp_path):
    """Why ranks do not meet by c10d: it orders nodes as they join, or by the names of their processes."""
    program = tmp_path / "program.py"
    program.write_text("import os\nprint('rank', os.environ['RANK'], os.environ['SERVER'], flush=True)\n")
    said = [ranks_by_c10d(program, ("s1", "s0")) for _ in range(3)]
    assert any("rank 0 s1" in each and "rank 1 s0" in each for each in said), said


def ranks_by_c10d(program, servers):
    """What the ranks print when torchrun is started for these servers, one after the other."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d",
        f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--rdzv-id=order", str(program),
    ]  # fmt: skip
    agents = []
    for server in servers:
        env = os.environ | {"SERVER": server, "OMP_NUM_THREADS": "1"}
        agents.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
    return "".join(agent.communicate(timeout=120)[0] for agent in agents)
