"""Updates that arrive during the next forward pass, in gangs: whoever reads weights after a step finds them all."""

import json

import pytest
from tests.train.gang import KEY, tiny_plan
from tests.train.parallel.test_matrix_rule import RULES, gang_in, plan_of

from gangline.checkpoint.format.stored_tensors import stored_digests
from gangline.errors import ConfigError
from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, Memory, ProgramSpec, Recovery

pytestmark = pytest.mark.long

FORWARD = {"overlap": "forward", "bucket_elements": 4096}
POLICY = CheckpointPolicy(every=2, keep=9, asynchronous=False)
"""Other steps leave updates to the pass after them."""


def outcome(gang):
    """Losses, what evaluations found, digests of model and optimizer in each checkpoint."""
    saved = [stored_digests(gang.store, each["key"], KEY, optimizer=True) for each in gang.events(event="saved")]
    return gang.result().jobs, [each["metrics"] for each in gang.events(event="evaluated")], saved


@pytest.mark.parametrize(
    ("rule", "strategy", "mesh"),
    [
        ("muon", "ddp", Mesh(dp_replicate=2)),
        ("soap", "zero1", Mesh(dp_replicate=2)),
        ("shampoo", "hsdp", Mesh(dp_replicate=2, dp_shard=2)),
        pytest.param("muon", "explicit", Mesh(dp_replicate=2, tp=2), marks=pytest.mark.long),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_every_checkpoint_is_that_of_steps_that_wait(warm, tmp_path, rule, strategy, mesh):
    found = []
    late = FORWARD if strategy != "ddp" else {"overlap": "forward"}
    for name, options in (("off", {}), ("forward", late)):
        gang, data = gang_in(tmp_path / name, warm)
        table = RULES[rule] | options
        memory = Memory(activation_checkpointing="full")
        plan = plan_of(strategy, mesh, data, optimizer=table, checkpoint=POLICY, evaluate_every=3, memory=memory)
        assert set(gang.run(plan)) == {0}, gang.log()
        found.append(outcome(gang))
    reported = gang.events(event="matrix_updates")[-1]["late"]
    assert reported["are_blocks"] == (strategy == "ddp")
    assert reported["buckets"] == plan.model["layers"] or strategy != "ddp"
    assert len(found[0][2]) == plan.steps // 2
    assert found[0] == found[1]


PROGRAM = """
import json, os
import torch
from gangline.train import Session, parallelize
from model import Net, Points, Tiny

task = Tiny()
with Session() as session:
    net = Net(layers=3)
    model = parallelize(net, session, hints=task.hints)
    optimizer = session.optimizer(model)

    def weights(batch):
        assert optimizer.is_whole
        return {"weights": (sum(each.double().sum() for each in net.parameters()), 1)}

    found = []
    for batch in session.batches(Points(0, 37)):
        session.backward(task.loss(model(batch["x"]), batch))
        assert optimizer.is_whole
        if session.step(optimizer):
            found.append([optimizer.is_whole, session.evaluate(Points(0, 8), weights)["weights"], session.loss])
    with open(f"{os.environ['GANGLINE_HOME']}/found.json", "w") as file:
        json.dump(found, file)
"""


def test_updates_are_outstanding_after_a_step_and_a_measure_finds_them_all(make_gang):
    found = {}
    for name, options in (("off", {}), ("forward", FORWARD | {"bucket_elements": 64})):
        gang = make_gang()
        (gang.code / "train.py").write_text(PROGRAM)
        table = {"rule": "muon", "dtype": "float32", "lr": 0.1, **options}
        plan = tiny_plan("ddp", program=ProgramSpec(command=("python", "train.py")), steps=5, optimizer=table)
        assert gang.run_program(plan) == [0, 0], gang.log()
        found[name] = json.loads((gang.home / "found.json").read_text())
    assert {whole for whole, *_ in found["off"]} == {True}
    # where a checkpoint was taken, it waited
    assert [whole for whole, *_ in found["forward"]] == [False, False, True, False, True]
    assert [rest for _, *rest in found["off"]] == [rest for _, *rest in found["forward"]]


@pytest.mark.parametrize(
    ("strategy", "mesh", "changes", "reason"),
    [
        ("ddp", Mesh(dp_replicate=2), {"recovery": Recovery(mode="live")}, 'mode = "live" continues from such states'),
        ("pp", Mesh(pp=2), {}, 'which no rank of a pipeline makes; "off" works there'),
    ],
    ids=["live", "pp"],
)
def test_what_leaves_no_forward_pass_or_no_whole_state_is_refused(warm, tmp_path, strategy, mesh, changes, reason):
    gang, data = gang_in(tmp_path, warm)
    plan = plan_of(strategy, mesh, data, optimizer=RULES["muon"] | FORWARD, **changes)
    assert set(gang.run(plan)) == {ConfigError.exit_code}
    assert reason in gang.log()
