"""How ranks end, by the number that callers act on, and what they leave behind."""

import re

import pytest
from tests.train.gang import ROOT, tiny_plan

from gangline.checkpoint.format.manifest import list_checkpoints
from gangline.spec.plan import ProgramSpec, Recovery


@pytest.mark.parametrize(
    ("strike", "codes"),
    [("nan:1:2", [31, 31]), ("raise:1:2", [34, 30]), ("memory:0:2", [32, 34]), ("kill:1:2", [34, 137])],
)
def test_rank_ends_with_the_number_of_what_happened(make_gang, strike, codes):
    gang = make_gang()
    assert gang.run(tiny_plan("ddp"), STRIKE=strike) == codes, gang.log()
    assert gang.events(event="done")[-1]["exit"] == codes[0]


def test_traceback_of_user_code_is_in_the_log(make_gang):
    gang = make_gang()
    assert gang.run(tiny_plan("none"), STRIKE="raise:0:2") == [30]
    assert "ValueError: the user's own mistake" in gang.log()
    assert gang.events(event="done")[-1]["reason"] == "ValueError: the user's own mistake"


def test_step_that_is_not_finite_is_never_saved_and_the_save_under_way_is_seen_through(make_gang):
    gang = make_gang()
    plan = tiny_plan("fsdp", steps=6)
    assert gang.run(plan, STRIKE="nan:0:6") == [31, 31]
    assert [each.step for each in list_checkpoints(gang.store, f"{plan.run_prefix}/checkpoints")] == [3]
    assert "step 6, samples 40 to 47" in gang.events(event="non_finite")[0]["reason"]


def test_skip_leaves_one_update_out(make_gang):
    gang = make_gang()
    assert gang.run(tiny_plan("ddp", recovery=Recovery(non_finite="skip")), STRIKE="nan:1:4") == [0, 0]
    assert gang.events(event="non_finite")[0]["samples"] == [24, 32]
    losses = dict(gang.result().jobs[0].losses)
    assert sorted(losses) == [1, 2, 3, 5, 6]
    assert max(losses.values()) < 100, "the weights stayed finite"


def test_rollback_takes_the_last_good_checkpoint_and_leaves_the_samples_out(make_gang):
    gang = make_gang()
    assert gang.run(tiny_plan("ddp", recovery=Recovery(non_finite="rollback")), STRIKE="nan:1:5") == [0, 0]
    steps = [line["step"] for line in gang.metrics()]
    assert steps == [1, 2, 3, 4, 4, 5, 6]
    assert gang.events(event="non_finite")[0]["samples"] == [32, 40]
    assert gang.events(event="resumed")[0]["step"] == 3


def test_plan_for_another_world_size_is_refused(make_gang):
    gang = make_gang()
    assert gang.run(tiny_plan("none"), WORLD_SIZE="2") == [10]
    assert "is for 1 ranks, this gang has 2" in gang.log()


def test_task_that_is_not_there_is_named_with_what_is(make_gang):
    gang = make_gang()
    assert gang.run(tiny_plan("none", program=ProgramSpec(task="model:Tinny"))) == [10]
    assert "model has no 'Tinny'; its classes are ['Block', 'Net', 'Points', 'Statistics', 'Tiny']" in gang.log()


def test_metrics_port_in_use_costs_the_series_not_the_training(make_gang):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        gang = make_gang()
        assert gang.run(tiny_plan("none"), GANGLINE_METRICS_PORT=str(taken.getsockname()[1])) == [0], gang.log()
    assert gang.events(event="metrics_not_served")


def test_metric_that_the_task_does_not_give_is_named_with_those_it_does(make_gang):
    gang = make_gang()
    assert gang.run(tiny_plan("none", evaluate_metrics=("accuracy",))) == [10]
    assert "the task does not return ['accuracy']; it returns ['error', 'eval_loss']" in gang.log()


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_seconds_of_a_rank_sum_to_its_life(make_gang, strategy):
    gang = make_gang()
    assert gang.run(tiny_plan(strategy, evaluate_every=2), STRIKE="slow:1:3") == [0, 0]
    for rank in (0, 1):
        started, *_, ended = gang.events(rank)
        assert sum(ended["seconds"].values()) == pytest.approx(ended["until"] - ended["began"], rel=1e-3)
        assert ended["began"] <= started["mono"] <= ended["until"] <= ended["mono"]
    assert [each["step"] for each in gang.events(event="evaluated")] == [2, 4, 6]
    waits = [gang.events(rank, "step")[2]["phases"]["wait"] for rank in (0, 1)]
    assert waits[0] > waits[1] + 0.15, "the rank that was slow waits least"


def test_no_part_of_the_runtime_pickles():
    words = re.compile(r"pickle|torch\.load|torch\.save|_object(_list)?\(")
    sources = (ROOT / "src" / "gangline" / "train").rglob("*.py")
    assert [path.name for path in sources if words.search(path.read_text())] == []
