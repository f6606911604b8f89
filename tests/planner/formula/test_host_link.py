"""Shards on the host: bytes over the link counted by hand, and the plan of a model that fits in no other way."""

from dataclasses import replace

import pytest
from tests.planner.cases import gpus, line
from tests.planner.formula.reference import A100, EIGHT, R1, SPACE
from tests.planner.formula.test_matrix_rules import profile_under
from tests.planner.formula.test_reference_case import SITE

from gangline.errors import ConfigError
from gangline.planner.choice import choose_plan
from gangline.planner.cost.speeds import HostRates
from gangline.planner.formula.evaluate import evaluate
from gangline.planner.formula.inputs import formula_profile
from gangline.spec.compression import Compression
from gangline.spec.config.line import MemoryTable, MeshTable

HOST = HostRates(link_bytes_per_second=20e9, memory_bytes_per_second=25e9)
ON_HOST = replace(R1, hardware=replace(A100, host=HOST), space=replace(SPACE, on_host=True, tp=(1,), pp=(1,)))


def plan(question, name):
    return next(each for each in evaluate(question).plans if each.layout.name == name)


@pytest.mark.parametrize(("sync", "reductions"), [("each", 16), ("last", 1)])
def test_link_carries_the_shard_before_each_gather_and_gradients_after_each_reduction(sync, reductions):
    space = replace(ON_HOST.space, syncs=(sync,), micro_batches=(1,), recompute=("full",), loss_chunks=(8,))
    found = plan(replace(ON_HOST, space=space), "fsdp-16")
    shard = EIGHT.parameters / 16
    assert found.parts.host == pytest.approx(4 * shard * (2 * 16 + reductions) / 20e9)
    assert found.parts.optimizer == pytest.approx(30 * shard / 25e9)
    assert (found.memory.weights, found.memory.optimizer) == (0.0, 0.0)
    assert found.memory.gradients == (0.0 if sync == "each" else 4 * EIGHT.parameters)


def test_layouts_without_shards_are_no_candidates_there():
    assert {each.layout.wrapping.shards for each in evaluate(ON_HOST).plans} == {True}


def test_host_without_room_holds_nothing():
    shard = 16 * EIGHT.parameters / 16
    assert plan(replace(ON_HOST, usable_host_bytes=shard), "fsdp-16").fits
    assert not plan(replace(ON_HOST, usable_host_bytes=shard - 1), "fsdp-16").fits


PROFILE = formula_profile(EIGHT)


def chosen(offload="auto", *, link=None, memory=40e9, nodes=1, profile=PROFILE):
    """On GPUs that hold neither weights, gradients nor moments of 8e9 parameters."""
    table = replace(SITE.gpu["a100"], memory_bytes=memory, host_link_bytes_per_second=link)
    site = replace(SITE, gpu={"a100": table})
    asked = line(
        batch=256, steps=10, mesh=MeshTable(micro_batch=1), memory=MemoryTable(offload=offload),
    )  # fmt: skip
    return choose_plan(asked, site, gpus(2, nodes, memory=memory, name="a100"), profile)


def test_shards_go_to_the_host_where_nothing_else_fits_and_nowhere_else():
    found = chosen()
    assert (found.memory.offload, found.strategy) == ("cpu", "zero2")
    assert next(iter(found.search.settings.values())).endswith(" host")
    assert chosen(memory=200e9).memory.offload == "none"
    assert chosen("cpu", memory=200e9).memory.offload == "cpu"
    with pytest.raises(ConfigError, match=r"wanted room for"):
        chosen("none")


def test_a_matrix_rule_goes_there_only_where_the_line_says_so_and_has_no_time():
    with pytest.raises(ConfigError, match=r"wanted room for"):
        chosen(profile=profile_under("muon"))
    found = chosen("cpu", profile=profile_under("muon")).forecast
    assert (found.step_seconds, found.missing) == (
        None,
        "the time of a matrix rule over shards on the host is not known",
    )


def test_a_slower_link_makes_a_slower_step():
    fast, slow = chosen(link=50e9), chosen(link=5e9)
    assert slow.forecast.step_seconds > fast.forecast.step_seconds


def test_a_layout_that_fits_and_is_for_no_rank_says_why_instead_of_what_it_needs():
    asked = line(batch=256, strategy="fsdp", compression=Compression(kind="topk"))
    with pytest.raises(ConfigError, match=r"fsdp-16 b4s would fit, but train\.compression\.kind = topk is"):
        choose_plan(asked, SITE, gpus(8, 2, memory=80e9, name="a100"), PROFILE)
