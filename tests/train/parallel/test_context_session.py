"""A program's own loop over sequences that are cut: `session.batches` gives each rank its parts, and their places."""

from dataclasses import replace

import pytest
from tests.train.parallel.long import CODE, long_plan

from gangline.spec.mesh import Mesh
from gangline.spec.plan import ProgramSpec

PROGRAM = """
from gangline.train import Session, parallelize
from model import Long, Net

task = Long()
with Session() as session:
    model = parallelize(Net(**session.plan.model), session, hints=task.hints)
    optimizer = session.optimizer(model)
    for batch in session.batches(task.build_data("train", {"model": {}})):
        outputs = model(batch["tokens"], batch.get(POSITIONS))
        session.backward(task.loss(outputs, batch))
        session.step(optimizer)
"""


CUT = Mesh(cp=2)


def run(gang, mesh=CUT, positions="positions"):
    (gang.code / "train.py").write_text(PROGRAM.replace("POSITIONS", repr(positions)))
    return gang.run_program(replace(long_plan(mesh), program=ProgramSpec(command=("python", "train.py"))))


@pytest.mark.proves("cp in a command", oracle="the same program on one rank, losses of 6 steps", gate="1e-5")
def test_program_over_cut_sequences_has_the_losses_of_one_process(make_gang, reached):
    losses = {}
    for mesh in (Mesh(), CUT):
        gang = make_gang(CODE)
        assert set(run(gang, mesh)) == {0}, gang.log()
        losses[mesh.cp] = [loss for _, loss in gang.result().jobs[0].losses]
    assert len(losses[1]) == 6
    worst = max(abs(ours / theirs - 1) for ours, theirs in zip(losses[2], losses[1], strict=True))
    assert worst <= 1e-5
    reached(worst)


def test_program_that_hands_no_positions_on_is_refused(make_gang):
    gang = make_gang(CODE)
    assert run(gang, positions="no such key") == [10, 10], gang.log()
    assert "was called without positions" in gang.events(event="done")[-1]["reason"]
