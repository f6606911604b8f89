"""What a loop of one's own asks a Session for: where it stands, a save now, held-out means, an early end."""

import json

import pytest
from tests.train.gang import KEY, tiny_plan

from gangline.checkpoint.format.stored_tensors import stored_digests
from gangline.spec.plan import CheckpointPolicy, Job, ProgramSpec
from gangline.storage.objects.protocol import list_all

STEPS = 6
PROGRAM = """
import json, math, os
from gangline.train import Session, parallelize
from model import Net, Points, Tiny

task, act = Tiny(), os.environ.get("ACT")
with Session() as session:
    model = parallelize(Net(norm=True), session, hints=task.hints)

    def errors_of(batch):
        assert not model.training
        errors = (model(batch["x"]) - batch["y"]).abs()
        return {"error": (errors.sum(), len(errors)), "index": (batch["index"].sum(), 1)}

    assert session.step_number == 0 and math.isnan(session.loss)
    optimizer = session.optimizer(model)
    told = [session.step_number]
    for batch in session.batches(Points(0, 37)):
        session.backward(task.loss(model(batch["x"]), batch))
        if not session.step(optimizer):
            continue
        told.append([session.step_number, session.loss])
        if act == "save" and session.rank == 1 and session.step_number == 1:
            session.save()
        if act == "leave" and session.step_number == 4:
            break
        if session.step_number == 2:
            session.report(**session.evaluate(Points(1000, 11), errors_of))
            assert model.training
    session.report(**session.evaluate(Points(1000, 11), errors_of))
    with open(f"{os.environ['GANGLINE_HOME']}/told-{session.rank}.json", "w") as file:
        json.dump(told, file)
"""


@pytest.fixture
def gang(make_gang):
    made = make_gang()
    (made.code / "train.py").write_text(PROGRAM)
    return made


def plan_of(strategy="ddp", **changes):
    policy = CheckpointPolicy(every=3, asynchronous=False)
    given = {"steps": STEPS, "micro_batch": 2, "checkpoint": policy}
    return tiny_plan(strategy, program=ProgramSpec(command=("python", "train.py")), **given | changes)


def reported(gang, rank=0):
    return json.loads((gang.home / f"told-{rank}.json").read_text())


@pytest.mark.parametrize("strategy", ["ddp", pytest.param("fsdp", marks=pytest.mark.slow)])
def test_every_rank_knows_step_and_loss_of_the_whole_gang(gang, strategy):
    assert gang.run_program(plan_of(strategy)) == [0, 0], gang.log()
    assert reported(gang, 0) == reported(gang, 1) == [0, *map(list, gang.result().jobs[0].losses)]


def test_means_over_held_out_data_are_those_of_one_rank(gang, make_gang):
    """Each sample counts once, though eleven do not divide into batches, and ranks share what buffers say."""
    assert gang.run_program(plan_of("ddp")) == [0, 0], gang.log()
    seen = [(each["step"], each["metrics"]) for each in gang.events(event="evaluated")]
    assert [step for step, _ in seen] == [2, STEPS]
    assert gang.result().jobs[0].metrics == seen[-1][1]
    assert seen[0][1]["error"] != seen[1][1]["error"]
    alone = make_gang()
    (alone.code / "train.py").write_text(PROGRAM)
    opened = plan_of("none", role="evaluate", jobs=(Job(seed=1, train=False, checkpoint=gang.result().checkpoint),))
    for entry in list_all(gang.store, opened.run_prefix):
        alone.store.put(entry.key, gang.store.get(entry.key).data)
    assert alone.run_program(opened) == [0], alone.log()
    assert alone.result().jobs[0].metrics == pytest.approx(seen[-1][1], rel=1e-6)


def test_one_rank_that_asks_has_all_save_the_next_step(gang):
    assert gang.run_program(plan_of(), ACT="save") == [0, 0], gang.log()
    assert [each["step"] for each in gang.events(event="saved")] == [2, 3, 6]


def test_loop_that_is_left_early_is_saved_where_it_stood_and_continues_there(gang, make_gang):
    whole = make_gang()
    (whole.code / "train.py").write_text(PROGRAM)
    assert whole.run_program(plan_of()) == [0, 0], whole.log()
    assert gang.run_program(plan_of(), ACT="leave") == [0, 0], gang.log()
    assert gang.result().final_step == 4
    assert [each["step"] for each in gang.events(event="saved")] == [3, 4]
    assert gang.run_program(plan_of()) == [0, 0], gang.log()
    assert reported(gang)[0] == 4
    ends = [stored_digests(each.store, each.result().checkpoint, KEY) for each in (gang, whole)]
    assert ends[0] == ends[1], "as if it had not been left"
