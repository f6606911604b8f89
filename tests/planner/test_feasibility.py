"""What the runtime does not carry out is refused before anything is spent, never ignored."""

from dataclasses import replace

import pytest
from tests.planner.cases import SITE, SMALL, cpu, line

from gangline.errors import ConfigError
from gangline.planner.choice import choose_plan
from gangline.spec.config.line import MemoryTable, MeshTable, ProjectTable, ProveTable
from gangline.spec.plan import Compression, Recovery


@pytest.mark.parametrize(
    ("key", "table"),
    [
        ("train.recovery.mode", {"recovery": Recovery(mode="live")}),
    ],
)
def test_option_that_would_be_ignored_is_refused_by_its_key(key, table):
    with pytest.raises(ConfigError, match=f"^{key}: .* is not supported; .* work"):
        choose_plan(line(**table), SITE, cpu(2), SMALL)


@pytest.mark.parametrize("asked", [line(strategy="ddp"), line(strategy="explicit", mesh=MeshTable(dp_replicate=2))])
def test_live_replicas_of_whole_models_stand(asked):
    asked = replace(asked, train=replace(asked.train, recovery=Recovery(mode="live")))
    assert choose_plan(asked, SITE, cpu(2), SMALL).name == "ddp-2"


def test_live_replicas_of_shards_stand():
    asked = line(strategy="explicit", mesh=MeshTable(dp_replicate=2, dp_shard=2), recovery=Recovery(mode="live"))
    assert choose_plan(asked, SITE, cpu(4), SMALL).strategy == "hsdp"


@pytest.mark.parametrize(
    "change",
    [
        {"strategy": "zero1"}, {"compression": Compression(kind="topk")},
        {"strategy": "explicit", "mesh": MeshTable(dp_replicate=2, tp=2)},
    ],
)  # fmt: skip
def test_live_replicas_that_hold_something_of_their_own_are_refused(change):
    asked = replace(line(strategy="ddp"), train=replace(line(strategy="ddp").train, recovery=Recovery(mode="live")))
    asked = replace(asked, train=replace(asked.train, **change))
    with pytest.raises(
        ConfigError, match=r"^train\.recovery\.mode: 'live' .*; it needs .* \"restart\" works everywhere"
    ):
        choose_plan(asked, SITE, cpu(2), SMALL)


def test_live_replicas_of_a_command_are_refused():
    asked = line(strategy="ddp", recovery=Recovery(mode="live"))
    asked = replace(asked, project=ProjectTable(name="demo", command=("python", "train.py")))
    with pytest.raises(ConfigError, match=r"it needs a project\.task: a program has a loop of its own"):
        choose_plan(asked, SITE, cpu(2), SMALL)


def test_all_such_options_are_refused_together():
    asked = line(compile=True, memory=MemoryTable(offload="activations"), recovery=Recovery(mode="live"))
    with pytest.raises(ConfigError) as caught:
        choose_plan(asked, SITE, cpu(2), SMALL)
    assert len(str(caught.value).splitlines()) == 2


def test_second_plan_that_cannot_be_run_is_refused_before_the_first_one_starts():
    asked = replace(line(), prove=ProveTable(plan="sideways"))
    with pytest.raises(ConfigError, match=r'^prove\.plan: "sideways" is not supported'):
        choose_plan(asked, SITE, cpu(2), SMALL)


@pytest.mark.parametrize("plan", ["auto", "off", "fsdp", "zero3"])
def test_second_plan_that_can_be_run_is_kept(plan):
    assert choose_plan(replace(line(), prove=ProveTable(plan=plan)), SITE, cpu(2), SMALL).name == "ddp-2"


@pytest.mark.parametrize("asked", [line(strategy="ep"), line(strategy="explicit", mesh=MeshTable(dp_shard=2, ep=2))])
def test_experts_of_a_commands_model_are_not_laid_over_ranks(asked):
    asked = replace(asked, project=ProjectTable(name="demo", command=("python", "train.py")))
    with pytest.raises(
        ConfigError, match=r"^train\.mesh\.ep: wanted 1 for a command, found 2; .* project\.task with ep"
    ):
        choose_plan(asked, SITE, cpu(2), SMALL)


FORWARD = {"rule": "muon", "overlap": "forward"}


def overlapping(asked):
    return replace(asked, optimizer=FORWARD)


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        (line(strategy="ddp"), "ddp"), (line(strategy="zero1"), "zero1"), (line(), "ddp"),
        (line(strategy="explicit", mesh=MeshTable(dp_replicate=2, dp_shard=2)), "hsdp"),
    ],
    ids=["ddp", "zero1", "auto", "explicit"],
)  # fmt: skip
def test_updates_that_copies_wait_for_stand_where_there_are_copies(asked, chosen):
    assert choose_plan(overlapping(asked), SITE, cpu(4), SMALL).strategy == chosen


@pytest.mark.parametrize(
    "asked",
    [
        line(strategy="fsdp"), line(strategy="none"), line(ranks=1),
        line(strategy="local_sgd", compression=Compression(outer_steps=4)),
    ],
    ids=["fsdp", "none", "auto", "local_sgd"],
)  # fmt: skip
def test_updates_that_no_one_waits_for_are_refused(asked):
    with pytest.raises(ConfigError, match=r"^optimizer\.overlap: .* no rank has such a copy here; .* works$"):
        choose_plan(overlapping(asked), SITE, cpu(4), SMALL)


def repeating(asked, rule="muon"):
    return replace(asked, optimizer={"rule": rule, "copies": "repeat"})


def test_copies_that_keep_all_state_do_not_share_it():
    with pytest.raises(ConfigError, match=r"^optimizer\.copies: .* zero1 deals it out to them; .* works$"):
        choose_plan(repeating(line(strategy="zero1")), SITE, cpu(2), SMALL)
    assert choose_plan(repeating(line(strategy="ddp")), SITE, cpu(2), SMALL).strategy == "ddp"


@pytest.mark.parametrize("rule", ["shampoo", "soap"])
def test_live_replicas_need_a_rule_whose_state_all_of_them_have(rule):
    live = line(strategy="ddp", recovery=Recovery(mode="live"))
    with pytest.raises(ConfigError, match=r"keeps state of a matrix on one rank; optimizer\.copies = \"repeat\""):
        choose_plan(replace(live, optimizer={"rule": rule}), SITE, cpu(2), SMALL)
    assert choose_plan(repeating(live, rule), SITE, cpu(2), SMALL).strategy == "ddp"


def test_updates_that_arrive_later_leave_live_replicas_no_whole_state():
    with pytest.raises(ConfigError, match=r"^optimizer\.overlap: .* \"off\", or recovery\.mode = \"restart\", works$"):
        choose_plan(overlapping(line(strategy="ddp", recovery=Recovery(mode="live"))), SITE, cpu(2), SMALL)
