"""From a choice to the plans of the three gangs."""

from dataclasses import replace

import pytest
from tests.planner.cases import SITE, SMALL, cpu, gpus, line, model_of

from gangline.errors import ConfigError
from gangline.planner.choice import choose_plan
from gangline.planner.plans import checkpoint_policy, evaluate_plan, make_plan, prove_plan, reader_processes, seed_plan
from gangline.planner.proof import make_proof_plan
from gangline.spec.config.line import CheckpointTable, DataTable, MeshTable
from gangline.spec.data_source import DataSource
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Job, Plan, Recovery, SaveCosts
from gangline.spec.profile import MeasuredRun

PREFIX = "runs/demo/abc/demo-1"
CHECKPOINT = f"{PREFIX}/checkpoints/step-00000120"


def plan(asked=None, inventory=None, profile=SMALL) -> Plan:
    asked = asked or line()
    choice = choose_plan(asked, SITE, inventory or cpu(2), profile)
    return make_plan(asked, choice, run="demo-1", run_prefix=PREFIX, data=DataSource(digest="d"))


def test_equal_questions_give_equal_bytes_that_read_back():
    assert plan().to_json() == plan().to_json()
    assert Plan.from_json(plan().to_json()) == plan()


def test_plan_carries_what_the_line_says():
    asked = line(mesh=MeshTable(micro_batch=4, bucket_bytes=1000), clip_norm=1.0, seed=7)
    made = plan(asked)
    assert (made.micro_batch, made.accumulation, made.bucket_bytes) == (4, 2, 1000)
    assert (made.clip_norm, made.seed, made.program.task) == (1.0, 7, "model:Demo")
    assert made.deterministic
    assert not plan(inventory=gpus(2)).deterministic


@pytest.mark.parametrize(("steps", "every"), [(6, 6), (10, 10), (40, 10), (120, 30), (2000, 500), (10**6, 500)])
def test_automatic_interval_is_a_quarter_within_bounds(steps, every):
    assert checkpoint_policy(line(steps=steps)).every == every


def test_interval_of_the_line_is_kept():
    asked = line(checkpoint=CheckpointTable(every=7, keep=2))
    assert (checkpoint_policy(asked).every, checkpoint_policy(asked).keep) == (7, 2)


@pytest.mark.parametrize(
    ("every", "mode", "changes"), [("auto", "restart", True), (7, "restart", False), ("auto", "live", False)]
)
def test_interval_that_was_chosen_here_goes_with_what_it_was_chosen_by(every, mode, changes):
    costs = SaveCosts(blocking_seconds=1.0, step_seconds=1.0, seconds_between_failures=1000.0)
    asked = line(steps=1000)
    train = replace(asked.train, checkpoint=replace(asked.train.checkpoint, every=every), recovery=Recovery(mode=mode))
    assert checkpoint_policy(replace(asked, train=train), costs).costs == (costs if changes else None)


def test_evaluate_gang_measures_the_checkpoint_and_trains_the_other_seeds():
    jobs = evaluate_plan(plan(), [3, 1, 2], CHECKPOINT).jobs
    assert jobs == (Job(seed=1, train=False, checkpoint=CHECKPOINT), Job(seed=2), Job(seed=3))


def test_prove_gang_opens_the_checkpoint_under_another_plan_and_replays():
    proof = prove_plan(plan(), "auto", CHECKPOINT, 20)
    assert (proof.role, proof.name, proof.world_size) == ("prove", "fsdp-2", 2)
    assert proof.jobs == (Job(seed=1, train=False, checkpoint=CHECKPOINT), Job(seed=1, steps=20))
    assert prove_plan(plan(), "auto", CHECKPOINT, 0).jobs == proof.jobs[:1]


def test_trainings_of_other_seeds_keep_unlike_shares_and_the_second_plan_has_equal_ones():
    unlike = replace(plan(line(strategy="ddp")), shares=(12, 4))
    assert evaluate_plan(unlike, [1, 2], CHECKPOINT).shares == (12, 4)
    assert seed_plan(unlike, 2).shares == (12, 4)
    for strategy in ("auto", "none", "ddp"):
        assert prove_plan(unlike, strategy, CHECKPOINT, 20).shares == ()


@pytest.mark.parametrize(
    ("first", "inventory", "second"),
    [
        ("ddp", cpu(2), "fsdp-2"),
        ("fsdp", cpu(2), "ddp-2"),
        ("none", cpu(2), "ddp-2"),
        ("none", cpu(1), "none"),
    ],
)
def test_automatic_second_plan_is_as_different_as_the_machine_allows(first, inventory, second):
    other = make_proof_plan(plan(line(strategy=first), inventory), inventory=inventory)
    assert other.name == second
    assert other.reason


def test_second_plan_without_another_shape_takes_smaller_passes():
    alone = plan(line(), cpu(1))
    for strategy in ("auto", "none", "ddp"):
        other = make_proof_plan(alone, strategy, inventory=cpu(1))
        assert (other.name, other.micro_batch, other.accumulation) == ("none", 8, 2)
        assert other.reason.endswith("none in passes of 8 where it took 16: no other shape fits here")


def test_second_plan_of_single_samples_computes_blocks_again():
    alone = plan(line(micro=1), cpu(1))
    other = make_proof_plan(alone, inventory=cpu(1), profile=replace(SMALL, blocks=4))
    assert (other.micro_batch, other.memory.activation_checkpointing) == (1, "full")
    assert other.reason == "none with blocks computed again: no other shape fits"
    assert make_proof_plan(alone, inventory=cpu(1)).reason == "the same plan again: nothing else fits here"


def test_second_plan_of_shards_that_only_all_ranks_hold_takes_more_ranks_or_cuts_layers():
    made = plan(line(ranks=2, batch=64, strategy="fsdp"), gpus(2), model_of(1.5))
    assert make_proof_plan(made, inventory=gpus(4)).name == "fsdp-4"
    assert make_proof_plan(made, inventory=gpus(2), profile=replace(SMALL, tensor_cuts=8)).name == "tp-2"
    assert make_proof_plan(made, inventory=gpus(2)).reason.startswith("fsdp-2 in passes of 8 where it took 16")


def test_whole_copy_that_does_not_fit_is_not_a_second_plan():
    made = plan(line(batch=64), gpus(8), model_of(2.1))
    assert made.name == "fsdp-8"
    assert make_proof_plan(made, inventory=gpus(8)).name == "fsdp-4"


def test_named_second_plan_is_honoured_and_keeps_the_batch():
    made = plan(line(strategy="none"), cpu(1))
    two = make_proof_plan(made, "fsdp", inventory=cpu(2))
    assert (two.name, two.micro_batch, two.global_batch) == ("fsdp-2", 8, 16)
    assert make_proof_plan(plan(), "none").name == "none"
    with pytest.raises(ConfigError, match=r"prove\.plan"):
        make_proof_plan(made, "sideways")


def test_second_plan_is_never_the_first_one_again_where_another_is_possible():
    other = make_proof_plan(plan(line(strategy="fsdp")), "fsdp", inventory=cpu(2))
    assert other.name == "ddp-2"
    assert other.reason.startswith("prove.plan is the plan itself, which proves nothing")


def test_second_plan_shares_the_batch_evenly():
    odd = replace(plan(line(batch=15, ranks=3), cpu(4)), micro_batch=5)
    for strategy in ("auto", "fsdp", "none"):
        other = make_proof_plan(odd, strategy, inventory=cpu(4))
        assert other.global_batch % (other.micro_batch * other.mesh.data_parallel) == 0


def test_interval_follows_what_saves_and_failures_cost_once_a_run_has_failed():
    runs = [
        MeasuredRun(run=f"r{failures}", strategy="ddp", mesh=Mesh(dp_replicate=2), device="cpu", precision="fp32",
                 global_batch=16, micro_batch=8, step_seconds=1.0, save_seconds=2.0, train_seconds=3600.0,
                 failures=failures)
        for failures in (0, 2)
    ]  # fmt: skip
    asked = line(steps=10_000, strategy="ddp")
    every = [
        make_plan(asked, choose_plan(asked, SITE, cpu(2), SMALL, history), run="r", run_prefix="p", data=DataSource())
        .checkpoint.every
        for history in (runs[:1], runs)
    ]  # fmt: skip
    assert every == [500, 119], "the root of 2 x 2 s x 3,600 s, and Daly's higher orders less"


@pytest.mark.parametrize(
    ("workers", "device", "inventory", "found"),
    [
        ("auto", "cpu", cpu(64), 0), ("auto", "cuda", gpus(8), 4), ("auto", "cuda", gpus(16), 3),
        ("auto", "cuda", replace(gpus(4), cores=4), 0), ("auto", "cuda", replace(gpus(8), cores=4), 0),
        (7, "cpu", cpu(2), 7), (0, "cuda", gpus(8), 0),
    ],
)  # fmt: skip
def test_auto_workers_are_the_cores_of_a_gpu_less_one_and_none_on_a_cpu(workers, device, inventory, found):
    asked = replace(line(), data=DataTable(workers=workers))
    assert reader_processes(asked, device, inventory) == found
