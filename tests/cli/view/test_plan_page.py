"""The page of a plan for a model known by its shape: bound, risk, saves, the network, and each number's origin."""

import json
import re
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import pytest
from tests.planner.cases import gpus, line
from tests.planner.formula.reference import EIGHT, R1
from tests.planner.formula.test_reference_case import SITE

from gangline.cli.commands.plan import PlanQuestion
from gangline.cli.view.plan_page import hypothetical_page
from gangline.cli.view.plan_table import memory_bar, plan_table
from gangline.errors import ConfigError, GateError, UsageError
from gangline.fabric.topology.inventory import Fabric, Group
from gangline.line.gangs.stated_network import PlannedNetwork
from gangline.line.stages.hypothetical import plan_hypothetically
from gangline.planner.formula.evaluate import evaluate
from gangline.spec.config.line import MeshTable, PlanTable, ProjectTable
from gangline.spec.forecast import MemoryCause

BARS = {
    "fsdp-16 b4s": "WOAAAAAAAAAAAAABB···", "tp2 zero2-8 b1": "WWWGGGGOAAB·········",
    "pp2 zero2-8 b1": "WWWGGGGOAAAAAA······", "zero2-16 b2s": "WWWWWOAAAAAAABBB····",
    "tp8 rep2 b1": "WWGOO···············", "zero1-16 b1f": "WWWWWWWWWWWWGGGGGGGG>",
    "ddp-16 b1f": "WWWWWWWWWWWWGGGGGGGG>",
}  # fmt: skip
"""Of the reference case, 4 GB a mark: 6.0, 4.0 and 8.0 GB of the fifth are two, one and two."""
PLANS = {each.name: each for each in evaluate(R1).plans}
FABRIC = Fabric(
    nic_bytes_per_second=50e9, intra_bus_bytes_per_second=200e9, leaf_uplinks=64, path_policy="hash",
    groups=(Group(name="g1", servers=("a1", "a2")),),
)  # fmt: skip


@pytest.mark.parametrize("name", BARS)
def test_a_bar_is_that_of_the_page(name):
    causes = [MemoryCause(cause=word, size_bytes=size) for word, size in PLANS[name].memory.by_cause.items()]
    assert memory_bar(causes, 80e9) == BARS[name]


@cache
def asked(*, fabric=None, count=2, rule=None, late=False, granted=0.0, latency=None, **bounds):
    mesh = MeshTable(pp_schedule="1f1b")
    optimizer = ({"rule": rule} if rule else {}) | ({"overlap": "forward"} if late else {})
    how = {"strategy": "ddp"} if late else {}
    model = replace(EIGHT, layers=8) if late else EIGHT
    wanted = replace(
        line(batch=256, steps=2000, mesh=mesh, **how), plan=PlanTable(transformer=model, **bounds), optimizer=optimizer
    )
    request = SimpleNamespace(line=wanted)
    network = None if fabric is None else PlannedNetwork(fabric=fabric, links="assumed, as fabric.toml states them")
    gpu = {"a100": replace(SITE.gpu["a100"], network_latency_seconds=latency)}
    site = replace(SITE, plan=replace(SITE.plan, overlap=granted), gpu=gpu)
    return plan_hypothetically(request, site=site, inventory=gpus(8, count, name="a100"), network=network)


def test_a_page_says_what_was_weighed_what_it_costs_and_how_likely_it_stops():
    lines = hypothetical_page(asked(), why=False).splitlines()
    assert lines[0] == (
        "2 servers x 8 a100 x 80 GB · 8.0 B parameters · 256 x 4,096 tokens · 2,000 steps · 2.00 EUR a GPU-hour"
    )
    assert lines[3].split()[:4] == ["fsdp-16", "b4s", "✓", "chosen"]
    assert "66.6  23.80 s  13 h 13 min  423.08  one axis; 5.4 % above the bound" in lines[3]
    assert lines[3].split()[-1] == "bound"
    said = "\n".join(lines)
    assert "step 23.80 s: compute 22.59 s, communication 1.20 s · rates given, not corrected by any run yet" in said
    assert "no step under 22.59 s on 16 GPUs (compute) · overlap 0: worst case, not yet measured here" in said
    assert "training 13 h 13 min on 16 GPUs · 423.08 EUR · P(interrupt) 0.4 % (llama3)" in said
    assert "searched  7,020 candidates, 1,444 weighed, 747 of them fit" in said
    assert "saves     file system: 1.9 s a save" in said


def test_page_of_two_kinds_says_what_each_takes_and_what_one_alone_would():
    fast = replace(
        SITE.gpu["a100"], flops_per_second={"bf16": 400e12}, memory_bytes_per_second=3e12, price_per_hour=4.0
    )
    site = replace(SITE, gpu={**SITE.gpu, "h100": fast})
    wanted = replace(line(batch=256, steps=2000), plan=PlanTable(transformer=EIGHT))
    both = replace(gpus(8, 2), others=(gpus(8, 2, name="a100"),))
    lines = hypothetical_page(
        plan_hypothetically(SimpleNamespace(line=wanted), site=site, inventory=both), why=False
    ).splitlines()
    assert "2 servers x 8 h100 x 80 GB and 2 servers x 8 a100 x 80 GB" in lines[0]
    assert lines[0].endswith("4.00 and 2.00 EUR a GPU-hour")
    assert re.search(r"2 servers of h100 take 192 samples in .*, 2 servers of a100 take 64 samples in", lines[3])
    assert any("on h100 " in each and " %: " in each for each in lines[4:7])
    assert any("on a100 " in each for each in lines[4:7])


def test_ranks_of_a_matrix_rule_are_in_the_document_where_reasons_are_asked_for(gangline, monkeypatch):
    wanted = replace(line(batch=256, steps=2000), optimizer={"rule": "muon"}, plan=PlanTable(transformer=EIGHT))
    found = plan_hypothetically(SimpleNamespace(line=wanted), site=SITE, inventory=gpus(8, 2, name="a100"))
    monkeypatch.setattr(PlanQuestion, "hypothetical", lambda _: found)
    assert json.loads(gangline("plan", "--json").stdout)["optimizer"] == []
    (plan,) = json.loads(gangline("plan", "--json", "--why").stdout)["optimizer"]
    assert len(plan["ranks"]) == plan["owners"] * plan["hosts"] == 16
    assert {each["name"] for each in plan["phases"]} >= {"compute"}


def test_a_program_has_the_table_of_its_shape_too():
    project = ProjectTable(name="demo", command=("python", "x.py"))
    wanted = replace(line(batch=256, steps=2000), project=project, plan=PlanTable(transformer=EIGHT))
    found = plan_hypothetically(SimpleNamespace(line=wanted), site=SITE, inventory=gpus(8, 2, name="a100"))
    lines = hypothetical_page(found, why=False).splitlines()
    assert lines[2].split()[0] == "PLAN"
    assert "✓ chosen" in lines[3]
    assert any(each.startswith("chosen    zero2-16") for each in lines)


def test_eighty_columns_are_enough():
    assert max(map(len, hypothetical_page(asked(fabric=FABRIC), why=True, width=80).splitlines())) <= 80


def test_terms_of_a_row_sum_and_agree_with_the_table():
    found = asked()
    lines = hypothetical_page(found, why=False, terms="zero2-16").splitlines()
    start = next(number for number, each in enumerate(lines) if each.startswith("known     zero2-16 b2s"))
    rows = {each.split()[0]: each.split()[1:] for each in lines[start + 1 :]}
    assert rows["step"][:2] == ["23.87", "s"]
    assert rows["memory"][:2] == ["66", "GB"]
    assert (rows["compute"][-1], rows["communication"][-4:]) == ("given", ["given,", "latency", "not", "stated"])
    candidate = found.choice.candidate("zero2-16")
    assert sum(each.seconds for each in candidate.forecast.terms) == pytest.approx(candidate.forecast.step_seconds)
    assert sum(each.size_bytes for each in candidate.forecast.memory_causes) == candidate.forecast.memory_bytes


@pytest.mark.parametrize("printed", ["fsdp-16", "fsdp-16 b4s", "* fsdp-16    b4s ", "'fsdp-16 b4s'"])
def test_a_plan_has_the_name_that_its_row_has(printed):
    assert asked().choice.candidate(printed) is asked().choice.candidates[0]


def test_a_plan_that_is_not_there_is_named_with_those_near_it():
    with pytest.raises(UsageError, match=r"wanted a plan of the table, found 'fsdp-17'; near it: .*fsdp-16"):
        asked().choice.candidate("fsdp-17")


def test_the_certificate_is_of_the_stated_network():
    assert asked(fabric=FABRIC).certificate.groups == 1
    assert "links     assumed, as fabric.toml" in hypothetical_page(asked(fabric=FABRIC), why=False)
    assert "network   groups 1 (bound 1)" in hypothetical_page(asked(fabric=FABRIC), why=False)
    assert asked(fabric=FABRIC, count=4).certificate is None  # it has two servers


def test_a_bound_that_nothing_keeps_refuses_and_names_the_nearest():
    found = asked(budget_money=10.0)
    assert found.budget.verdict == "no"
    assert "comes nearest: money:" in found.budget.reason
    assert GateError.exit_code == 60


def test_buckets_are_explained_where_a_latency_is_stated():
    page = hypothetical_page(asked(latency=20e-6, late=True), why=True)
    (found,) = (each.split("  ", 1)[1] for each in page.splitlines() if each.split()[:1] == ["buckets"])
    assert "of 26 MB, torch's own; " in found
    assert found.endswith("(smallest message 0.6 ms, given)")
    unknown = "what they leave exposed is not known: no such message was measured, and no latency is given"
    assert unknown in hypothetical_page(asked(late=True), why=True)


def test_a_matrix_rule_has_its_time_state_and_messages_and_owners_where_asked():
    page = hypothetical_page(asked(rule="muon"), why=True)
    owners = "muon/standard: 224 matrices, 1 owner x 16 hosts"
    reported = page[page.index("optimizer muon/standard: 7.0 G parameters in its matrices") :].splitlines()
    assert reported[0].split(" · ")[1:] == [
        "319 ms a step with the exchange and all other parameters (given)",
        "state 36 GB in all",
        "3.3 GB of parts and updates sent by each rank",
    ]
    assert owners in reported[2]
    assert owners not in hypothetical_page(asked(rule="muon"), why=False)
    assert "\noptimizer" not in hypothetical_page(asked(), why=False)


def test_updates_that_travel_during_the_forward_pass_are_reported_with_what_hides_them():
    waits, granted = (asked(rule="muon", late=True, granted=each) for each in (0.0, 0.5))
    page, other = (hypothetical_page(each, why=True) for each in (waits, granted))
    updates = granted.choice.forecast.updates
    assert 0 < updates.hidden_seconds < updates.seconds
    reported = (
        f"which hides {1000 * updates.hidden_seconds:.2f} ms and waits for {1000 * updates.exposed_seconds:.2f} ms"
    )
    assert reported in other
    assert "which hides 0.00 ms" in page
    assert "no computing counts as hiding them ([plan] overlap of site.toml)" in page
    assert "8 buckets by block, up to 218,103,808 elements a rank (chosen)" in page


def test_a_table_has_updates_where_they_take_memory():
    found = asked(rule="muon", late=True)
    [chosen] = [each for each in found.choice.candidates if each.verdict == "chosen"]
    more = MemoryCause(cause="updates", size_bytes=7e9)
    causes = (*chosen.forecast.memory_causes, more)
    grown = replace(chosen, forecast=replace(chosen.forecast, memory_causes=causes))
    plain, with_updates = (
        plan_table([(each.name, each)], capacity_bytes=80e9, width=None, every=True) for each in (chosen, grown)
    )
    assert "UPD" not in plain
    assert " UPD " in with_updates
    assert ", U updates" in with_updates
    assert "U" in with_updates.splitlines()[1]
    assert "  7.0" in with_updates.splitlines()[1]


def test_a_rule_of_a_repository_counts_as_the_elementwise_one_and_that_is_said():
    assert "it counts as the elementwise rule" in hypothetical_page(asked(rule="own.rules:Mine"), why=False)


@pytest.mark.parametrize("table", [{}, {"rule": "muon"}])
def test_an_optimizer_that_the_task_makes_is_said_to_be_unknown(table):
    found = asked()
    request = SimpleNamespace(line=replace(found.request.line, optimizer=table))
    made = replace(found, request=request, profile=replace(found.profile, builds_optimizer=True))
    assert "\noptimizer left to build_optimizer of the task: what it keeps is not known" in hypothetical_page(
        made, why=True
    )


def test_a_table_that_the_task_alone_reads_is_not_passed_over():
    found = asked()
    request = SimpleNamespace(line=replace(found.request.line, optimizer={"rule": "lion", "beta": 3}))
    page = hypothetical_page(replace(found, request=request), why=False)
    assert "\noptimizer left to build_optimizer of the task: what it keeps is not known, AdamW counts" in page


SHAPE = ("layers=16", "width=2048", "heads=32", "feed_width=8192", "vocabulary=128256", "sequence=4096")


def test_a_plan_for_a_built_in_kind_says_what_is_published_and_what_assumed(gangline, tmp_path):
    sets = [word for each in (*SHAPE, "key_value_heads=8") for word in ("--set", f"plan.transformer.{each}")]
    batch = ("--set", "train.global_batch=256")
    said = gangline("plan", "--gpus", "h100:64", *sets, *batch).stdout.splitlines()
    assert "8 servers x 8 h100 x 80 GB" in said[0]
    assert said[-2] == (
        "published h100: 80 GB at 3.35 TB/s, 989 TFLOP/s in bf16 and 67 in fp32, NVLink of 450 GB/s each way "
        "(NVIDIA H100 Tensor Core GPU datasheet, SXM)"
    )
    assert said[-1] == (
        "assumed   h100: 45 % of these FLOP/s, 90 % of the memory's rate, 67 % of the links, 80 % of 400 Gb/s of "
        "network a GPU, 2 µs a message inside a server, 8 µs a message between servers; [gpu.h100] of site.toml "
        "states yours"
    )
    found = json.loads(gangline("plan", "--gpus", "h100:64", *sets, *batch, "--json").stdout)["known_gpus"]["h100"]
    assert found["published"]["flops_per_second"]["bf16"] == 989e12
    assert "network_bytes_per_second" in found["assumed"]
    (tmp_path / "fabric.toml").write_text(
        "[fabric]\nnic_bytes_per_second = 50e9\nintra_bus_bytes_per_second = 300e9\n", "ascii"
    )
    fabric = ("--fabric", str(tmp_path / "fabric.toml"))
    last = gangline("plan", "--gpus", "h100:64", *sets, *batch, *fabric).stdout.splitlines()[-1]
    assert "of the links" not in last
    assert "of network" not in last
    assert "8 µs a message between servers" in last


def test_a_plan_for_gpus_that_the_site_describes_ends_without_such_lines(gangline, tmp_path):
    site = tmp_path / "site.toml"
    site.write_text("[gpu.h100]\nmemory_bytes = 80e9\nflops_per_second = { bf16 = 400e12 }\n", "ascii")
    sets = [word for each in SHAPE for word in ("--set", f"plan.transformer.{each}")]
    said = gangline("plan", "--gpus", "h100:8", "--site", str(site), *sets, "--set", "train.global_batch=64").stdout
    assert said.startswith("8 h100 x 80 GB")
    assert "published" not in said
    assert "assumed" not in said
    assert gangline("plan", "--gpus", "64").exit_code == ConfigError.exit_code
