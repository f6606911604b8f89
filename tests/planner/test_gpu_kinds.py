"""Choice among kinds of GPU: one kind, or a gang of two whose replicas take samples by their speed."""

from dataclasses import replace

import pytest
from tests.planner.cases import gpus, line
from tests.planner.formula.reference import EIGHT
from tests.planner.transformers import EIGHT as LARGE
from tests.planner.transformers import ONE, transformer

from gangline.errors import ConfigError
from gangline.planner.choice import choose_plan
from gangline.planner.forecast import formula_of
from gangline.planner.formula.inputs import formula_profile
from gangline.planner.gpu_kinds import choose_kinds
from gangline.planner.layouts.layout import layout_of
from gangline.planner.plans import make_plan
from gangline.planner.request import PlanRequest
from gangline.planner.settings import Setting
from gangline.planner.unlike_gang import GpuPair, with_batch
from gangline.spec.config.line import MeshTable, PlanTable
from gangline.spec.config.site import GpuTable, Site
from gangline.spec.data_source import DataSource
from gangline.spec.devices import Inventory
from gangline.spec.forecast import Forecast, Term
from gangline.spec.plan import Memory
from gangline.spec.profile import MeasuredRun

FAST, SLOW = (
    GpuTable(
        memory_bytes=80e9, flops_per_second={"bf16": flops}, memory_bytes_per_second=2.5e12,
        link_bytes_per_second=300e9, network_bytes_per_second=network, price_per_hour=price,
    )
    for flops, network, price in ((400e12, 40e9, 3.0), (140e12, 20e9, 1.5))
)  # fmt: skip
SITE = Site(gpu={"h100": FAST, "a100": SLOW})
BOTH = replace(gpus(8, 8), others=(gpus(8, 8, name="a100"),))
BY_FORMULA, TRACED = formula_profile(EIGHT), transformer(**ONE, sequence=4096)


def kinds_of(profile, asked=None, inventory=BOTH, site=SITE, history=()):
    asked = asked or line(batch=512, steps=2000)

    def ask(asked, devices):
        return PlanRequest.about(asked, site, devices, profile, history)

    return choose_kinds(asked, inventory, choose=lambda each: choose_plan(asked, site, each, profile, history), ask=ask)


@pytest.mark.parametrize("profile", [BY_FORMULA, TRACED, transformer(**LARGE, sequence=4096)])
def test_faster_gang_of_both_kinds_wins_and_its_plan_has_the_shares(profile):
    found = kinds_of(profile)
    choice = found.choice
    assert [each.gpus.name for each in found.inventory.kinds] == ["h100", "a100"]
    assert choice.mesh.world_size == 128
    plan = make_plan(line(batch=512), choice, run="r", run_prefix="p", data=DataSource())
    first = len(plan.shares) // 2
    assert 2 < plan.shares[0] / plan.shares[-1] < 5
    assert len(set(plan.shares[:first])) == 1
    alone = {each.name: each for each in choice.candidates if " on " in each.name}
    assert len(alone) == 2
    assert all(each.forecast.step_seconds > 1.05 * choice.forecast.step_seconds for each in alone.values())
    assert [each.verdict for each in choice.candidates].count("runner_up") == 1


@pytest.mark.parametrize("objective", ["time", "money"])
def test_winner_is_the_best_by_the_objective_or_in_its_band_and_simpler(objective):
    asked = replace(line(batch=512, steps=2000), plan=PlanTable(objective=objective))
    choice = kinds_of(BY_FORMULA, asked).choice
    costs = {
        each.name: each.forecast.money if objective == "money" else each.forecast.step_seconds
        for each in choice.candidates
        if each.verdict in ("chosen", "runner_up", "lost", "dearer", "more_axes") and each.forecast.step_seconds
    }
    assert costs[choice.name] <= 1.05 * min(costs.values())
    assert bool(choice.shares) is (objective == "time"), "one kind is cheaper here: both wait for each other"


def test_money_of_a_gang_is_that_of_each_kind_at_its_price():
    choice = kinds_of(TRACED).choice
    hours = choice.forecast.gpu_hours
    assert choice.forecast.money == pytest.approx(hours / 2 * 3.0 + hours / 2 * 1.5)


def test_second_kind_that_gains_less_than_the_band_stays_out():
    few = replace(gpus(8, 8), others=(gpus(8, 1, name="a100"),))
    found = kinds_of(TRACED, line(batch=8640, steps=2000, strategy="ddp"), few)
    assert found.inventory.device_names == "h100"
    both = next(each for each in found.choice.candidates if each.name == "ddp-72 on h100 and a100")
    assert both.forecast.step_seconds < found.choice.forecast.step_seconds
    assert "in the band, two kinds of GPU where one does" in both.reason


def test_messages_between_servers_go_at_the_rate_of_the_slower_kind():
    pair = GpuPair.of(line(), BOTH.kinds, lambda asked, each: PlanRequest.about(asked, SITE, each, TRACED, ()))
    assert [each.pool.gpu.network_bytes_per_second for each in pair.requests] == [20e9, 20e9]
    assert [each.pool.gpu.flops_per_second["bf16"] for each in pair.requests] == [400e12, 140e12]


def test_no_split_is_done_sooner_than_the_one_of_a_traced_model():
    asked = line(batch=512, steps=2000, strategy="ddp", mesh=MeshTable(micro_batch=1))
    choice = kinds_of(TRACED, asked).choice
    pair = GpuPair.of(asked, BOTH.kinds, lambda asked, each: PlanRequest.about(asked, SITE, each, TRACED, ()))
    shape, options = layout_of("ddp", 128), Setting(micro_batch=1, precision="bf16", memory=Memory())
    by_share = [
        [formula_of(with_batch(each, share * 128), shape, options).step_seconds for share in range(1, 8)]
        for each in pair.requests
    ]
    every = [max(by_share[0][first - 1], by_share[1][7 - first]) for first in range(1, 8)]  # 64 replicas of each
    assert choice.shares == (6,) * 64 + (2,) * 64
    assert choice.forecast.step_seconds == pytest.approx(min(every))


def test_kinds_that_earlier_runs_measured_are_corrected_each_by_its_own():
    terms = (Term(part="compute", seconds=0.01, raw_seconds=0.01, origin="measured"),)
    history = [
        MeasuredRun(
            run="r", strategy="ddp", mesh=layout_of("ddp", 8).mesh, device="cuda", device_name="a100", precision="bf16",
            global_batch=8, micro_batch=1, step_seconds=0.02, parts={"compute": 0.02},
            forecast=Forecast(terms=terms, step_seconds=0.01, device_name="a100"),
        )
        for _ in range(50)
    ]  # fmt: skip
    plain, corrected = kinds_of(TRACED).choice, kinds_of(TRACED, history=history).choice
    assert corrected.shares[-1] < plain.shares[-1], "the slower kind is twice as slow as its formula"


@pytest.mark.parametrize(
    ("asked", "others", "words"),
    [
        (line(batch=512, ranks=(8, 64)), gpus(8, 8, name="a100"), "elastic gang"),
        (line(batch=512, ranks=64), gpus(8, 8, name="a100"), "train.ranks is not 128"),
        (line(batch=512), gpus(4, 8, name="a100"), "servers of 8 and of 4 GPUs"),
        (line(batch=64), gpus(8, 8, name="a100"), "share its batch"),
        (line(batch=512), gpus(8, 8, memory=5e9, name="a100"), "no fit"),
    ],
)
def test_what_no_gang_of_both_kinds_can_be_loses_with_its_reason(asked, others, words):
    choice = kinds_of(TRACED, asked, replace(gpus(8, 8), others=(others,))).choice
    assert not choice.shares
    refused = next(each for each in choice.candidates if each.name == "ddp-128 on h100 and a100")
    assert words in refused.reason
    assert refused.verdict in ("unsupported", "no_fit")


def test_target_that_starts_equal_pods_is_offered_no_gang_of_two_kinds():
    choice = kinds_of(TRACED, inventory=replace(BOTH, one_kind_because="here all pods are equal")).choice
    assert not choice.shares
    assert choice.candidates[-1].reason == "here all pods are equal"


def test_site_that_describes_one_kind_lends_its_rates_to_no_other():
    cheap = replace(line(batch=512, steps=2000), plan=PlanTable(objective="money"))
    few = replace(gpus(8, 8), others=(gpus(8, 1, name="a100"),))
    for asked in (line(batch=512, steps=2000), cheap):
        found = kinds_of(TRACED, asked, few, site=Site(gpu={"h100": FAST}))
        assert found.inventory.device_names == "h100"
        refused = {each.name: each for each in found.choice.candidates if " on " in each.name}
        assert refused.keys() == {"ddp-8 on a100", "ddp-72 on h100 and a100"}
        assert all("does not describe a100" in each.reason for each in refused.values())


def test_kind_on_which_nothing_fits_is_a_row_with_its_reason():
    large, tiny = transformer(**LARGE, sequence=4096), gpus(8, 1, memory=5e9, name="a100")
    choice = kinds_of(large, inventory=replace(gpus(8, 8), others=(tiny,))).choice
    refused = next(each for each in choice.candidates if each.name == "ddp-8 on a100")
    assert refused.verdict == "no_fit"
    assert "wanted room" in refused.reason


def test_kinds_without_times_are_planned_for_as_if_there_was_the_first_one_alone():
    bare = replace(FAST, flops_per_second={}, memory_bytes_per_second=None)
    some = replace(gpus(8, 8, name="gold"), others=BOTH.others)
    found = kinds_of(TRACED, inventory=some, site=Site(gpu={"gold": bare, "a100": SLOW}))
    assert not found.choice.shares
    assert found.inventory.device_names == "gold"
    assert found.choice.candidates[-1].reason.startswith("no step time: ")


def test_one_kind_is_chosen_from_as_ever():
    alone = replace(BOTH, others=())
    found = kinds_of(TRACED, inventory=alone)
    assert found.choice == choose_plan(line(batch=512, steps=2000), SITE, alone, TRACED)
    assert found.inventory == alone


def test_what_fits_on_no_kind_is_refused_as_on_the_first():
    tiny = replace(gpus(8, 1, memory=5e9), others=(gpus(8, 1, memory=5e9, name="a100"),))
    with pytest.raises(ConfigError, match="wanted room"):
        kinds_of(transformer(**LARGE, sequence=4096), inventory=tiny)


def test_smallest_of_two_kinds_represents_all_nodes():
    both = replace(gpus(8, 2), others=(gpus(8, 3, memory=40e9, name="a100"),))
    assert both.as_smallest == replace(gpus(8, 5, memory=40e9, name="a100"))
    assert both.device_names == "h100 and a100"
    assert Inventory.from_json(both.to_json()) == both


def test_a_batch_smaller_than_the_gang_gets_a_plan():
    """Of 64 GPUs in copies most would have no sample: such layouts are no candidates."""
    few = replace(gpus(8, 4), others=(gpus(8, 4, name="a100"),))
    choice = kinds_of(BY_FORMULA, line(batch=8), inventory=few).choice
    assert choice.mesh.data_parallel <= 8
