"""What the environment of ranks says of the plan."""

import sys
from dataclasses import replace

import pytest
from tests.train.gang import tiny_plan

from gangline.keeper.coordination.world_size import GangShape
from gangline.keeper.ipc.environment import KeeperEnvironment, RankEnvironment
from gangline.keeper.rank_environment import collectives_environ, rank_starts
from gangline.spec.mesh import Mesh
from gangline.spec.plan import ProgramSpec
from gangline.spec.python_environment import environ_of_this_interpreter


@pytest.mark.parametrize(
    ("device", "collectives", "wanted"),
    [
        ("cuda", "ring", {"NCCL_ALGO": "Ring"}),
        ("cuda", "tree", {"NCCL_ALGO": "Tree"}),
        ("cuda", "auto", {}),
        ("cpu", "ring", {}),
    ],
)
def test_nccl_learns_of_ring_or_tree_where_it_is_there(device, collectives, wanted):
    assert collectives_environ(tiny_plan(device=device, collectives=collectives)) == wanted


def test_programs_of_the_keepers_virtual_environment_come_first_where_no_one_activated_it(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/env/bin/python")
    monkeypatch.setattr(sys, "prefix", "/env")
    assert environ_of_this_interpreter({"PATH": "/usr/bin", "A": "1"}) == {"PATH": "/env/bin:/usr/bin", "A": "1"}
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    assert environ_of_this_interpreter({"PATH": "/usr/bin"}) == {"PATH": "/usr/bin"}


@pytest.mark.parametrize("distributed", [True, False])
def test_a_program_that_is_not_distributed_sees_no_ranks_and_its_library_does(tmp_path, distributed):
    environ = {
        "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0",
        "GANGLINE_RUN": "r", "GANGLINE_GANG": "g", "GANGLINE_HOME": str(tmp_path), "GANGLINE_STORE": "file:/nowhere",
        "GANGLINE_PLAN": str(tmp_path / "plan.json"), "GANGLINE_CODE": str(tmp_path), "GANGLINE_KEY_FILE": "/key",
        "PATH": "/usr/bin",
    }  # fmt: skip
    (tmp_path / "logs").mkdir()
    program = ProgramSpec(command=("python", "train.py"), distributed=distributed)
    [start] = rank_starts(
        KeeperEnvironment.read(environ), replace(tiny_plan(), program=program, mesh=Mesh()), environ,
        shape=GangShape(world_size=1, nodes=(0,)), generation=3, port=4321, fork=False,
    )  # fmt: skip
    reported = {
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "TF_CONFIG",
        "JAX_COORDINATOR_ADDRESS",
    }
    assert reported & start.environ.keys() == (reported if distributed else set())
    assert start.environ["PATH"] == environ_of_this_interpreter(environ)["PATH"]
    found = RankEnvironment.read(start.environ)
    assert (found.rank, found.world_size, found.master_port, found.generation) == (0, 1, 4321, 3)
