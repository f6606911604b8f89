"""Forecasts rank what fits: by time or money, within bounds, and only where what nobody knows would change nothing."""

import json
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.planner.cases import RATES, TRACED, cpu, earlier, gpus, line
from tests.planner.transformers import H100, ONE, transformer

from gangline.errors import ConfigError
from gangline.planner.budget import check
from gangline.planner.candidates import rank
from gangline.planner.choice import choose_plan
from gangline.planner.contest import TimeBounds
from gangline.planner.layouts.layout import Layout
from gangline.planner.request import PlanRequest
from gangline.spec.codec import to_plain
from gangline.spec.config.line import MemoryTable, PlanTable
from gangline.spec.config.site import LimitsTable, Site
from gangline.spec.mesh import Mesh
from gangline.spec.profile import MeasuredRun, Unit

SMALL = transformer(layers=4, width=1024, feed=4096, words=32_000, sequence=1024, heads=16)
LARGE = transformer(**ONE, sequence=4096)
LIMITS = LimitsTable()


def asked(batch=64, **bounds):
    train = line(batch=batch)
    return replace(train, plan=PlanTable(**bounds))


def verdicts(choice):
    return {each.name: (each.verdict, each.reason) for each in choice.candidates}


def forecasts(choice):
    return {each.name: each.forecast for each in choice.candidates}


def measured(strategy: str, mesh: Mesh, seconds: float, batch: int = 64) -> MeasuredRun:
    return MeasuredRun(
        run="r", strategy=strategy, mesh=mesh, device="cuda", device_name="h100", precision="bf16", global_batch=batch,
        micro_batch=8, step_seconds=seconds,
    )  # fmt: skip


def test_the_fastest_by_forecast_wins_where_it_is_faster_whatever_is_hidden():
    """One sample a rank: the update of all moments on each of eight ranks outlasts the gathering of shards."""
    choice = choose_plan(asked(batch=8), H100, gpus(8), LARGE)
    assert choice.name == "fsdp-8"
    assert choice.reason == "takes 7 % less time than ddp-8, by forecast"
    assert verdicts(choice)["ddp-8"] == ("lost", "7.5 % slower by forecast, most of it optimizer")
    steps = {name: each.step_seconds for name, each in forecasts(choice).items()}
    assert steps["zero2-8"] < steps["fsdp-8"], "but only while nothing hides"
    assert "faster if no traffic hides" in verdicts(choice)["zero2-8"][1]


def test_without_rates_of_links_the_fixed_order_decides():
    silent = Site(gpu={"h100": replace(H100.gpu["h100"], link_bytes_per_second=None)})
    choice = choose_plan(asked(batch=8), silent, gpus(8), LARGE)
    assert choice.name == "ddp-8"
    assert all(each.forecast.step_seconds is None for each in choice.candidates if each.mesh.world_size > 1)


def test_a_measured_step_corrects_the_forecasts_of_all_others():
    """Three times as slow as it was said to be, and still the fastest: others are three times as slow as well."""
    plain = choose_plan(asked(), H100, gpus(8), SMALL)
    assert plain.name == "fsdp-8"
    slow = [measured("fsdp", Mesh(dp_shard=8), 3 * plain.forecast.step_seconds)]
    choice = choose_plan(asked(), H100, gpus(8), SMALL, slow)
    assert (choice.name, choice.forecast.origin) == ("fsdp-8", "measured n=1")
    assert forecasts(choice)["ddp-8"].step_seconds < choice.forecast.step_seconds, "which nobody compares"


def test_measured_steps_beat_forecasts():
    plain = choose_plan(asked(), H100, gpus(8), SMALL)
    seconds = forecasts(plain)
    runs = [
        measured("ddp", Mesh(dp_replicate=8), seconds["ddp-8"].step_seconds * 2),
        measured("fsdp", Mesh(dp_shard=8), seconds["ddp-8"].step_seconds),
    ]
    choice = choose_plan(asked(), H100, gpus(8), SMALL, runs)
    assert choice.name == "fsdp-8"
    assert choice.reason.startswith("takes 50 % less time than ddp-8, measured")
    assert verdicts(choice)["ddp-8"][1].startswith("100.0 % slower: ")


def test_experts_over_ranks_whose_rows_no_one_saw_wait_for_a_measurement():
    mixed = transformer(layers=4, width=512, feed=1024, words=32_000, sequence=1024, heads=8, experts=8, active=2)
    unseen = tuple(replace(each, expert_entries=0) for each in mixed.traces[0].units)
    mixed = replace(mixed, traces=(replace(mixed.traces[0], units=unseen),))
    choice = choose_plan(asked(), H100, gpus(8), mixed)
    verdict, reason = verdicts(choice)["ep-8"]
    assert (verdict, reason.startswith("no step time: ")) == ("lost", True)
    known = forecasts(choice)["ddp-8"].step_seconds
    runs = [
        measured("ddp", Mesh(dp_replicate=8), known),
        measured("ep", Mesh(dp_shard=8, ep=8), known / 2),
    ]
    assert choose_plan(asked(), H100, gpus(8), mixed, runs).name == "ep-8"


def test_a_rank_alone_does_not_outrun_a_rehearsal_on_cores_or_the_ranks_of_a_line():
    """A message costs more than all that is computed."""
    slow = replace(RATES, messages=tuple(replace(each, seconds=10.0) for each in RATES.messages))
    assert choose_plan(line(), Site(), cpu(2), TRACED, rates=slow).name == "ddp-2"
    far = Site(gpu={"h100": replace(H100.gpu["h100"], link_bytes_per_second=1e3)})
    assert choose_plan(asked(), far, gpus(2), SMALL).name == "none"
    two = replace(asked(), train=replace(asked().train, ranks=2))
    assert choose_plan(two, far, gpus(2), SMALL).name != "none"


def test_a_plan_beyond_a_bound_loses_to_one_within():
    free = choose_plan(asked(batch=8), H100, gpus(8), LARGE)
    seconds = {name: each.wall_seconds for name, each in forecasts(free).items() if each.wall_seconds}
    bounds = PlanTable(deadline_seconds=(bound := (seconds["tp-4x2"] + seconds["fsdp-8"]) / 2))
    choice = choose_plan(replace(asked(batch=8), plan=bounds), H100, gpus(8), LARGE)
    assert choice.forecast.wall_seconds <= bound
    assert choice.name != "fsdp-8"
    verdict, reason = verdicts(choice)["fsdp-8"]
    assert verdict == "late"
    assert reason.startswith("time: ")
    assert check(bounds, LIMITS, choice.forecast).verdict == "unknown", "no run corrected it"


def test_where_none_is_within_the_nearest_is_chosen_and_the_refusal_names_it():
    choice = choose_plan(asked(batch=8, budget_money=1e-6), H100, gpus(8), LARGE)
    known = [each.money for name, each in forecasts(choice).items() if each.money]
    assert choice.forecast.money == min(known)
    assert choice.reason.startswith("no plan is within the bounds, this one comes nearest")
    assert {each.verdict for each in choice.candidates[1:] if each.forecast.money} == {"over_budget"}
    corrected = replace(choice.forecast, origin="calibrated n=3")
    gate = check(PlanTable(budget_money=1e-6), LIMITS, corrected, nearest=choice.name)
    assert gate.verdict == "no"
    assert gate.reason.startswith(f"no plan is within the bounds, {choice.name} comes nearest: money: ")


def test_money_as_the_objective_takes_the_cheapest():
    by_time, by_money = (
        choose_plan(asked(batch=8, objective=word), H100, gpus(8), SMALL) for word in ("time", "money")
    )
    assert by_money.forecast.money < by_time.forecast.money
    assert by_money.forecast.wall_seconds > by_time.forecast.wall_seconds
    assert verdicts(by_money)[by_time.name][0] == "dearer"
    assert "dearer, by forecast" in verdicts(by_money)[by_time.name][1]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_order_of_earlier_runs_changes_nothing(order):
    runs = [earlier(3.0), earlier(4.0, strategy="ddp", mesh=Mesh(dp_replicate=2)), earlier(2.0, parts=False)]
    choices = [
        choose_plan(line(), Site(), cpu(2), TRACED, each, rates=RATES) for each in (runs, [runs[i] for i in order])
    ]
    first, second = (json.dumps(to_plain(each.candidates), sort_keys=True) for each in choices)
    assert first == second


@given(most=st.floats(0.1, 10), least=st.floats(0.1, 10), factor=st.floats(0.5, 2), band=st.floats(0, 0.3))
def test_clearly_below_needs_both_ends(most, least, factor, band):
    pace, other = TimeBounds(most, least), TimeBounds(most * factor, least * factor)
    assert pace.is_clearly_below(other, band) == (factor > 1 + band) or factor == pytest.approx(1 + band)
    assert not (pace.is_clearly_below(other, band) and other.is_clearly_below(pace, band))
    assert not pace.is_clearly_below(TimeBounds(most * 100, least), band)


questions = st.fixed_dictionaries(
    {
        "count": st.sampled_from([1, 2, 4, 8]), "nodes": st.sampled_from([1, 2]),
        "batch": st.sampled_from([2, 8, 32, 96]), "memory": st.sampled_from([5.5e9, 7e9, 12e9, 80e9]),
        "link": st.sampled_from([1e9, 3e10, 3e11]), "network": st.sampled_from([1e8, 1e10, 1e11]),
        "objective": st.sampled_from(["time", "money"]),
    }
)  # fmt: skip


def question(table, **bounds):
    links = {"link_bytes_per_second": table["link"], "network_bytes_per_second": table["network"]}
    site = Site(gpu={"h100": replace(H100.gpu["h100"], **links)})
    train = line(batch=table["batch"], memory=MemoryTable(offload="none"))
    asks = replace(train, plan=PlanTable(objective=table["objective"], **bounds))
    return asks, site, gpus(table["count"], table["nodes"], memory=table["memory"]), SMALL


def ranked(asks, site, there, profile, shapes=None):
    """The order of all that was considered, or of `shapes`; None: nothing fits."""
    try:
        choice = choose_plan(asks, site, there, profile)
    except ConfigError:
        return None
    considered = [Layout(each.strategy, each.mesh) for each in choice.candidates if each.verdict != "unsupported"]
    ranking = rank(PlanRequest.about(asks, site, there, profile, ()), considered if shapes is None else shapes)
    assert shapes or ranking.order[0].name == choice.name
    return ranking


def unbeaten(ranking, shapes):
    costs = ranking.costs
    return {each for each in shapes if not any(costs[other].is_clearly_below(costs[each], 0.05) for other in shapes)}


@settings(max_examples=15, deadline=None)
@given(table=questions, budget=st.sampled_from([None, 0.5, 2.0, 20.0]))
def test_a_faster_or_cheaper_plan_within_the_bounds_is_never_passed_over(table, budget):
    ranking = ranked(*question(table, budget_money=budget))
    if ranking is None or not ranking.times:
        return
    winner, within = ranking.order[0], [shape for shape in ranking.costs if shape not in ranking.over]
    assert not within or winner in unbeaten(ranking, within)
    assert within or ranking.over[winner].ratio == min(each.ratio for each in ranking.over.values())


@settings(max_examples=15, deadline=None)
@given(table=questions, data=st.data())
def test_in_which_order_shapes_are_weighed_changes_no_number(table, data):
    about = question(table)
    if (ranking := ranked(*about)) is None:
        return
    shuffled = ranked(*about, shapes=data.draw(st.permutations(ranking.order)))
    assert (shuffled.times, shuffled.costs, shuffled.over) == (ranking.times, ranking.costs, ranking.over)
    assert not ranking.times or shuffled.order[0] in unbeaten(ranking, list(ranking.costs))


@settings(max_examples=15, deadline=None)
@given(table=questions)
def test_more_memory_never_makes_the_choice_clearly_slower(table):
    """Twice the band: how a plan is run, and which is, are each settled within it."""
    some, more = (ranked(*question(table | {"memory": table["memory"] * factor})) for factor in (1, 2))
    if some and some.times:
        assert more.times
        before, after = (each.costs[each.order[0]] for each in (some, more))
        assert not before.is_clearly_below(after, 0.11)


def test_the_runner_up_is_not_a_second_name_of_the_winner():
    """A model without blocks is gathered once and stays whole, whether it is to be kept or not."""
    (trace,) = LARGE.traces
    root = Unit(name="", parameters=LARGE.parameters, flops=trace.flops_per_sample, saved_bytes=1e9, boundary_bytes=0)
    alone = replace(LARGE, blocks=0, largest_block_parameters=None, tensor_cuts=0, sequence=None)
    whole = replace(alone, traces=(replace(trace, units=(root,)),))
    choice = choose_plan(asked(batch=8), H100, gpus(8), whole)
    assert [shape.name for shape, _ in choice.finalists] == ["fsdp-8", "ddp-8"]
    shown = {each.name: each.verdict for each in choice.candidates}
    assert (shown["fsdp-8"], shown["zero2-8"], shown["ddp-8"]) == ("chosen", "lost", "runner_up")
    assert [shape.name for shape, _ in choose_plan(asked(batch=8), H100, gpus(8), LARGE).finalists] == [
        "fsdp-8",
        "tp-4x2",
    ]
