"""Search over all candidates: pruning against exhaustive enumeration, bounds, rules, one reason for each loser."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from tests.planner.cases import gpus, line
from tests.planner.formula.reference import A100, EIGHT, R1, SPACE
from tests.planner.formula.test_matrix_rules import optimizer_under
from tests.planner.formula.test_reference_case import SITE

from gangline.errors import ConfigError
from gangline.planner.choice import choose_plan
from gangline.planner.cost.optimizer import ADAMW
from gangline.planner.formula.evaluate import evaluate
from gangline.planner.formula.inputs import formula_profile
from gangline.planner.formula.memory import memory_bound_bytes
from gangline.planner.formula.step_time import step_bound_seconds
from gangline.planner.layouts.enumerate import layouts, unsupported_rule
from gangline.planner.plans import make_plan
from gangline.spec.codec import from_json
from gangline.spec.config.line import MemoryTable, MeshTable, PlanTable
from gangline.spec.data_source import DataSource
from gangline.spec.plan import SCHEDULE_NAMES, Plan
from gangline.spec.transformer import Transformer

MIXTURE = Transformer(
    layers=8, width=1024, heads=16, key_value_heads=8, feed_width=3584, vocabulary=32_000, sequence=4096, experts=8,
    active_experts=2,
)  # fmt: skip
WIDE = replace(SPACE, pp=(1, 2, 8), cp=(1, 2), micro_batches=(1, 4), schedules=SCHEDULE_NAMES)


def rules(layout, sync, chunks):
    return unsupported_rule(layout, sync=sync, loss_chunks=chunks)


@settings(max_examples=8, deadline=None, phases=(Phase.explicit, Phase.generate))  # a shrunk case takes minutes
@given(
    layers=st.sampled_from([4, 8, 32]), usable=st.sampled_from([10e9, 69e9, 1e12]), band=st.sampled_from([0, 0.05]),
    across=st.sampled_from([1e9, 40e9]), ruled=st.booleans(), overlap=st.sampled_from([0.0, 0.5]),
    optimizer=st.sampled_from([ADAMW, optimizer_under("soap")]), latency=st.sampled_from([0.0, 2e-3]),
)  # fmt: skip
@example(
    layers=4, usable=1e12, band=0, across=40e9, ruled=False, overlap=0.0, optimizer=ADAMW, latency=2e-3
)  # fmt: skip
def test_pruning_loses_no_plan_within_the_band(layers, usable, band, across, ruled, overlap, optimizer, latency):
    question = replace(
        R1, model=replace(EIGHT, layers=layers), space=WIDE, usable_bytes=usable, optimizer=optimizer,
        hardware=replace(
            A100, links=replace(A100.links, across=across, inside_latency=latency, across_latency=latency),
            overlap=overlap,
        ),
        support=rules if ruled else R1.support,
    )  # fmt: skip
    every, pruned = evaluate(question, band=band, most_weighed=10**9), evaluate(question, band=band, most_weighed=0)
    assert pruned.search.num_weighed <= every.search.num_weighed
    assert every.search.num_weighed == every.search.num_candidates == pruned.search.num_candidates
    runs = {each.layout: each.step_seconds for each in every.plans if each.fits and not each.unsupported}
    least = min(runs.values(), default=float("inf"))
    found = {each.layout: each.step_seconds for each in pruned.plans if each.fits and not each.unsupported}
    for layout, seconds in runs.items():
        if seconds <= least * (1 + band):
            assert found[layout] == pytest.approx(seconds)
        assert found.get(layout, seconds) == pytest.approx(seconds)
        assert pruned.slower.get(layout, 0.0) <= seconds * (1 + 1e-9)


def test_no_step_is_below_its_bounds_and_no_rank_below_its_own():
    question = replace(R1, space=WIDE)
    found, least = evaluate(question, most_weighed=10**9), memory_bound_bytes(question)
    assert all(each.step_seconds >= step_bound_seconds(question) for each in found.plans)
    assert all(each.memory.total >= least for each in found.plans)


def test_every_degree_is_a_candidate_or_has_its_rule():
    space = replace(SPACE, world_size=64, tp=(1, 2, 3, 8), pp=(1, 5, 64), cp=(1, 3), ep=(1, 2, 16), global_batch=96)
    found, ruled_out = layouts(space, formula_profile(MIXTURE))
    products = [
        (tp, pp, cp, ep)
        for tp, pp, cp, ep in product(space.tp, space.pp, space.cp, space.ep)
        if 64 % (tp * pp * cp) == 0 and 64 // (tp * pp) % ep == 0
    ]
    kept = {(each.mesh.tp, each.mesh.pp, each.mesh.cp, each.mesh.ep) for each in found}
    assert len(kept) + sum(ruled_out.values()) == len(products)
    assert set(ruled_out) == {
        "pp = 64 stages want as many blocks", "ep = 16 does not divide the experts", "64 ranks do not divide the batch",
    }  # fmt: skip


def test_shapes_that_share_experts_compute_those_a_token_goes_through():
    experts = formula_profile(MIXTURE)
    assert experts.experts == 8
    assert experts.tensor_cuts == 8
    found = evaluate(replace(R1, model=MIXTURE, space=replace(SPACE, ep=(1, 2, 4, 8), pp=(1, 2))))
    assert any(each.layout.mesh.ep == 8 for each in found.plans)
    dense = replace(MIXTURE, experts=1, active_experts=1, feed_width=2 * MIXTURE.feed_width)
    mixed, alike = (step_bound_seconds(replace(R1, model=each)) for each in (MIXTURE, dense))
    assert mixed == pytest.approx(alike, rel=1e-3)


def choose(*, device=80e9, batch=256, count=16, model=EIGHT, site=SITE, **more):
    asked = line(batch=batch, steps=2000, **more)
    where = gpus(min(8, count), max(1, count // 8), memory=device, name="a100")
    return choose_plan(asked, site, where, formula_profile(model)), asked


def test_every_layout_has_one_verdict_and_its_reason():
    choice, _ = choose(memory=MemoryTable(gradient_sync="each"))
    assert [each.verdict for each in choice.candidates].count("chosen") == 1
    assert all(each.reason for each in choice.candidates)
    assert len({each.name for each in choice.candidates}) == len(choice.candidates)
    assert choice.search.num_candidates > choice.search.num_weighed > choice.search.num_fit


def test_a_plan_survives_json_and_equal_questions_give_equal_bytes():
    def plan():
        choice, asked = choose(mesh=MeshTable(pp_schedule="1f1b"))
        return make_plan(asked, choice, run="r", run_prefix="p", data=DataSource())

    assert from_json(Plan, plan().to_json()) == plan()
    assert plan().to_json() == plan().to_json()


def test_the_line_fixes_what_it_says():
    choice, _ = choose(
        strategy="fsdp",
        mesh=MeshTable(micro_batch=2),
        memory=MemoryTable(activation_checkpointing="full", loss_chunks=4),
    )
    assert (choice.name, choice.micro_batch) == ("fsdp-16", 2)
    assert (choice.memory.activation_checkpointing, choice.memory.loss_chunks) == ("full", 4)
    late, _ = choose(strategy="fsdp", memory=MemoryTable(gradient_sync="last"))
    assert late.memory.gradient_sync == "last"
    assert late.forecast.step_seconds > 23.8


def test_explicit_degrees_are_the_only_layouts():
    choice, _ = choose(strategy="explicit", mesh=MeshTable(tp=2, dp_shard=8))
    assert {each.name for each in choice.candidates} <= {"tp2 fsdp-8", "tp2 zero2-8"}
    assert choice.name == "tp2 fsdp-8"


def test_a_model_that_fits_nowhere_names_the_nearest_and_what_would():
    with pytest.raises(ConfigError) as caught:
        choose(device=12e9, count=8, mesh=MeshTable(pp_schedule="1f1b"), memory=MemoryTable(offload="none"))
    assert "8.0 B parameters" in str(caught.value)
    assert 'train.memory.offload = "auto" would fit' in str(caught.value)


def test_a_deadline_that_nothing_meets_keeps_the_nearest():
    asked = replace(line(batch=256, steps=2000), plan=PlanTable(deadline_seconds=60.0))
    measured = replace(SITE, plan=replace(SITE.plan, band=0.05))
    choice = choose_plan(asked, measured, gpus(8, 2, name="a100"), formula_profile(EIGHT))
    assert choice.reason == "no plan is within the bounds, this one comes nearest"
    assert {each.verdict for each in choice.candidates} <= {
        "chosen",
        "runner_up",
        "late",
        "lost",
        "unsupported",
        "no_fit",
    }


def test_without_rates_the_fewest_axes_that_fit_win_and_no_time_is_claimed():
    blind = replace(SITE, gpu={"a100": replace(SITE.gpu["a100"], link_bytes_per_second=None)})
    choice, _ = choose(site=blind)
    assert choice.forecast.step_seconds is None
    assert "no link_bytes_per_second" in choice.forecast.missing
    assert choice.reason == "one axis, the fewest of what fits"


def test_an_elastic_line_gets_the_other_world_sizes_that_hold_the_model():
    choice, _ = choose(ranks=(2, 16), strategy="fsdp")
    sizes = {size.mesh.world_size: size.micro_batch for size in choice.sizes}
    assert (choice.name, choice.micro_batch, sizes[8]) == ("fsdp-16", 4, 2)
    assert choice.reason.endswith("never on 2 ranks, which cannot hold it")


def test_a_batch_that_no_layout_shares_is_named():
    with pytest.raises(ConfigError, match=r"64 ranks that shares train.global_batch = 7 evenly, found none"):
        choose(batch=7, count=64, mesh=MeshTable(pp=1, pp_schedule="1f1b"), model=replace(EIGHT, layers=1, heads=1,
               key_value_heads=1, sequence=1))  # fmt: skip


def test_what_ranks_here_do_not_run_never_wins_however_fast_it_is():
    choice, _ = choose(site=replace(SITE, plan=replace(SITE.plan, band=0.0)), mesh=MeshTable(pp_schedule="1f1b"))
    chosen, *others = choice.candidates
    fastest = min(
        (each for each in others if each.verdict == "unsupported"), key=lambda each: each.forecast.step_seconds
    )
    assert fastest.forecast.step_seconds < chosen.forecast.step_seconds
    assert (chosen.verdict, fastest.reason[0]) == ("chosen", "-")


@pytest.mark.parametrize("model", [EIGHT, replace(EIGHT, tied=True, gated=False), MIXTURE])
def test_shapes_of_a_model_by_its_shape_hold_all_its_parameters(model):
    found = formula_profile(model)
    assert sum(each.rows * each.columns * each.count for each in found.shapes) == found.parameters
