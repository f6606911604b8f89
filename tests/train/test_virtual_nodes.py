"""Ranks on several nodes train as ranks on one do, bit for bit; each node has a keeper and a warm parent of its own."""

import pytest
from tests.launch.local.machine import Machine
from tests.train.gang import MESHES, tiny_plan

from gangline.spec.mesh import Mesh


@pytest.fixture
def machine(tmp_path):
    machine = Machine(tmp_path)
    yield machine
    machine.close()


@pytest.mark.slow
def test_ddp_over_two_nodes_has_the_losses_of_one_node(machine, make_gang):
    plan = tiny_plan("ddp")
    end = machine.train(plan)
    assert (end.exit_code, end.restarts) == (0, 0), end
    one = make_gang()
    assert one.run(plan) == [0, 0], one.log()
    assert machine.losses(plan) == one.result().jobs[0].losses


@pytest.mark.long
def test_fsdp_over_two_nodes_continues_bit_for_bit_after_a_rank_of_the_second_was_killed(machine, make_gang):
    plan = tiny_plan("fsdp")
    end = machine.train(plan, STRIKE="kill:1:5")
    assert (end.exit_code, end.restarts, end.generation) == (0, 1, 1), end
    assert end.allocated_seconds > 0
    assert sum(end.ledger.values()) == pytest.approx(end.allocated_seconds, rel=1e-3)
    assert machine.store.get(f"{plan.run_prefix}/ranks/1.jsonl") is not None, "each node mirrors its ranks"
    one = make_gang()
    assert one.run(plan) == [0, 0], one.log()
    assert machine.losses(plan) == one.result().jobs[0].losses


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "hsdp"])
def test_four_ranks_on_two_nodes_have_the_losses_of_four_on_one(machine, make_gang, strategy):
    plan = tiny_plan(strategy, mesh=Mesh(dp_replicate=4) if strategy == "ddp" else MESHES["hsdp"], micro_batch=2)
    assert machine.train(plan).exit_code == 0
    one = make_gang()
    assert one.run(plan) == [0] * 4, one.log()
    assert machine.losses(plan) == one.result().jobs[0].losses
