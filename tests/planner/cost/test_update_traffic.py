"""What a forward pass hides of updates of matrices, and what they take of memory, in traced plans and by formula."""

from dataclasses import replace

import pytest
from tests.planner.cases import RATES, TRACED, cpu, gpus, line, step_load_of
from tests.planner.formula.reference import A100, R1, SPACE

from gangline.planner.cost.memory import host_bytes, rank_parts
from gangline.planner.cost.optimizer import OptimizerModel, what_hides
from gangline.planner.forecast import formula_of
from gangline.planner.formula.evaluate import evaluate, layout_memory
from gangline.planner.layouts.layout import Layout, WrappedLayout
from gangline.planner.pool import open_pool
from gangline.planner.problem import PlanProblem
from gangline.planner.settings import Setting
from gangline.spec.config.site import GpuTable, Site
from gangline.spec.mesh import Mesh
from gangline.spec.profile import MatrixWork
from gangline.spec.strategies import DDP

WORK = MatrixWork(
    rule="muon/standard", parameters=1_600_000, flops=0.0, largest_flops=0.0, sharded_bytes=0, owner_bytes=0, blocks=4,
    overlaps=True,
)  # fmt: skip
TWO = Layout("ddp", Mesh(dp_replicate=2))
OPTIONS = Setting(micro_batch=8, precision="fp32")


def forecast(overlap, *, shape=TWO, options=OPTIONS, **work):
    profile = replace(TRACED, matrix_work=replace(WORK, **work))
    problem = PlanProblem(line=line(), pool=open_pool(Site(), cpu(2)), profile=profile, rates=RATES)
    return formula_of(problem, shape, options, overlap=overlap)


def optimizer_seconds(found):
    return next(term.seconds for term in found.terms if term.part == "optimizer")


def test_what_a_pass_hides_is_off_the_step_and_the_rest_is_reported():
    waits, granted = forecast(0.0), forecast(1.0)
    assert waits.updates.buckets == 4
    assert waits.updates.exposed_seconds == waits.updates.seconds
    assert waits.updates.hiding_seconds == 0
    assert granted.updates.least_exposed_seconds < granted.updates.exposed_seconds < granted.updates.seconds
    hidden = optimizer_seconds(waits) - optimizer_seconds(granted)
    assert hidden == pytest.approx(granted.updates.hidden_seconds)
    off = forecast(1.0, overlaps=False)
    assert off.updates is None
    assert optimizer_seconds(off) == pytest.approx(optimizer_seconds(waits))


def test_only_the_first_pass_of_a_step_hides_and_only_copies_send():
    many = forecast(1.0, options=replace(OPTIONS, micro_batch=1))
    assert many.updates.hiding_seconds < forecast(1.0).updates.hiding_seconds
    assert forecast(1.0, shape=Layout("fsdp", Mesh(dp_shard=2))).updates is None


def test_computing_that_hides_gradients_hides_no_updates():
    assert what_hides(2.0, computed=6.0, exchanged=0.0, overlap=0.5) == 1.0
    assert what_hides(2.0, computed=6.0, exchanged=2.5, overlap=0.5) == 0.5
    assert what_hides(2.0, computed=6.0, exchanged=4.0, overlap=0.5) == 0.0


@pytest.mark.parametrize(("strategy", "hides"), [("ddp", True), ("hsdp", False)])
def test_shards_on_a_gpu_wait_for_all_as_the_pass_begins(strategy, hides):
    mesh = Mesh(dp_replicate=4) if strategy == "ddp" else Mesh(dp_replicate=2, dp_shard=2)
    rates = GpuTable(
        memory_bytes=80e9, flops_per_second={"fp32": 1e12}, memory_bytes_per_second=1e12, link_bytes_per_second=1e9
    )
    pool = open_pool(Site(gpu={"h100": rates}), gpus(4))
    problem = PlanProblem(line=line(), pool=pool, profile=replace(TRACED, matrix_work=WORK))
    found = formula_of(problem, Layout(strategy, mesh), replace(OPTIONS, micro_batch=4), overlap=1.0).updates
    assert (found.least_exposed_seconds < found.seconds) == hides


def test_a_given_size_of_buckets_decides_their_number():
    assert forecast(1.0, bucket_elements=200_000).updates.buckets == 8
    assert forecast(1.0, bucket_elements=10**9).updates.buckets == 1
    assert forecast(1.0, bucket_elements=10**9).updates.hidden_seconds == 0
    assert forecast(1.0, blocks=0).updates.buckets == 1


def test_updates_count_where_activations_leave_no_room_for_them():
    profile = replace(TRACED, matrix_work=replace(WORK, c_max_bytes=1_000))
    assert rank_parts(profile, TWO, step_load_of()).by_cause["updates"] == 4 * 1_600_000
    busy = rank_parts(profile, TWO, step_load_of(micro_batch=3))
    assert busy.updates == 4 * 1_600_000 - busy.activations
    assert "updates" not in rank_parts(profile, TWO, step_load_of(micro_batch=16)).by_cause
    fsdp = Layout("fsdp", Mesh(dp_shard=2))
    assert rank_parts(profile, fsdp, step_load_of()).by_cause["updates"] == 6_000
    assert "updates" not in rank_parts(profile, fsdp, step_load_of(offload="cpu")).by_cause
    assert host_bytes(profile, fsdp, step_load_of(offload="cpu")) == 16 * 1_000_000 + 6_000
    # shards free their gradients before the next pass: gradients and updates share what activations leave
    shards = Layout("hsdp", Mesh(dp_replicate=2, dp_shard=2))
    load = step_load_of(micro_batch=6)
    both = rank_parts(profile, shards, load)
    state = 4 * TRACED.parameters / 2 + 4 * 1_600_000 / 2
    assert both.gradients + both.updates + both.activations == max(state, both.activations + both.gradients)


def test_a_step_that_waits_holds_its_own_updates_and_those_of_two_buckets():
    mesh = Mesh(dp_replicate=4)

    def held(**changes):
        return OptimizerModel(matrix_work=replace(WORK, **changes)).update_bytes(mesh)

    assert held() == 6_400_000
    assert held(overlaps=False, bucket_elements=400_000_000) == 6_400_000
    assert held(overlaps=False, bucket_elements=400_000) == 6_400_000 * (1 + 0.5 * 3) / 4
    assert OptimizerModel(matrix_work=WORK).held_bytes(Mesh(dp_shard=4)) == 0


def test_a_host_assembles_a_group_at_a_time_or_all_that_it_has():
    def assembled(mesh, **changes):
        return OptimizerModel(matrix_work=replace(WORK, overlaps=False, **changes)).update_bytes(mesh)

    fsdp, hsdp = Mesh(dp_shard=4), Mesh(dp_replicate=2, dp_shard=2)
    assert assembled(fsdp) == 6 * 1_600_000, "its share of 6.4 MB"
    assert assembled(fsdp, c_max_bytes=400_000) == 6 * 400_000
    assert assembled(fsdp, c_max_bytes=400_000, largest_elements=300_000) == 6 * 1_200_000, "one matrix is larger"
    assert assembled(hsdp) == 1_600_000 + 6 * 1_600_000, "with its own updates, which go to a copy then"


BY_FORMULA = OptimizerModel(
    matrix_work=replace(WORK, parameters=7_000_000_000, blocks=32, flops=1e15, largest_flops=1e13)
)
SLOW = replace(A100, links=replace(A100.links, inside=40e9, across=40e9))


def plans_by_formula(overlap, optimizer=BY_FORMULA):
    space = replace(SPACE, tp=(1,), pp=(1,), wrappings=(DDP,))
    question = replace(R1, space=space, optimizer=optimizer, usable_bytes=1e12, hardware=replace(SLOW, overlap=overlap))
    return question, evaluate(question)


def test_the_search_takes_what_a_pass_hides_off_and_keeps_its_choice_where_it_prunes():
    _, waits = plans_by_formula(0.0)
    question, granted = plans_by_formula(0.3)
    [plan] = [each for each in granted.plans if each.layout.wrapping == DDP]
    [other] = [each for each in waits.plans if each.layout.wrapping == DDP]
    assert plan.updates.hidden_seconds > 0 == other.updates.hidden_seconds
    assert other.parts.optimizer - plan.parts.optimizer == pytest.approx(plan.updates.hidden_seconds)
    pruned = evaluate(question, most_weighed=0)
    assert [each.step_seconds for each in pruned.plans if each.layout.wrapping == DDP] == [plan.step_seconds]


def test_memory_by_formula_has_updates_where_activations_leave_no_room():
    layout = WrappedLayout.of(mesh=Mesh(dp_replicate=16), wrapping=DDP)
    held = BY_FORMULA.update_bytes(layout.mesh)
    assert held == 4 * 7_000_000_000
    question, found = plans_by_formula(0.0)
    plan = next(each for each in found.plans if each.layout.wrapping == DDP)
    memory = layout_memory(question, plan.layout, plan.setting)
    assert memory.updates == max(0.0, held - memory.activations - memory.buffers)
    assert sum(memory.by_cause.values()) == memory.total
    assert BY_FORMULA.update_bytes(Mesh(dp_shard=16)) == 6 * (1 << 30), "c_max"


def test_a_plan_fits_where_its_updates_do():
    space = replace(SPACE, tp=(1,), pp=(1,), wrappings=(DDP,), micro_batches=(1,), recompute=("full",))
    question = replace(R1, space=space, optimizer=BY_FORMULA, usable_bytes=1e12)
    memory = evaluate(question).plans[0].memory
    assert memory.updates > 0
    fits = [evaluate(replace(question, usable_bytes=memory.total - less)).plans[0].fits for less in (0, 1)]
    assert fits == [True, False]
