"""Pipelines that are planned: stages over nodes, enough micro-batches, the schedule that leaves least idle."""

from dataclasses import replace

import pytest
from tests.planner.cases import SITE, SMALL, cpu, gpus, line

from gangline.errors import ConfigError
from gangline.planner.choice import choose_plan
from gangline.planner.plans import make_plan
from gangline.planner.proof import make_proof_plan
from gangline.spec.config.line import MeshTable, ProjectTable
from gangline.spec.data_source import DataSource
from gangline.spec.mesh import Mesh

DEEP = replace(SMALL, blocks=16, tensor_cuts=8)


def chosen(schedule="auto", *, profile=DEEP, batch=64, micro_batch="auto", pp=4, compiled=False, devices=4, **degrees):
    mesh = MeshTable(pp=pp, pp_schedule=schedule, micro_batch=micro_batch, **degrees)
    asked = line(strategy="explicit", mesh=mesh, batch=batch, compile=compiled)
    return choose_plan(asked, SITE, gpus(devices), profile)


@pytest.mark.parametrize(
    ("strategy", "inventory", "profile", "mesh", "name"),
    [
        ("pp", gpus(4), DEEP, Mesh(pp=4), "pp-4"),
        ("pp", gpus(4), replace(DEEP, blocks=2), Mesh(pp=2, dp_shard=2), "pp-2x2"),
        ("pp", gpus(8, 2), DEEP, Mesh(pp=2, dp_shard=8), "pp-2x8"),
        ("pp", cpu(2), SMALL, Mesh(pp=2), "pp-2"),
        ("3d", gpus(8), DEEP, Mesh(pp=2, dp_shard=2, tp=2), "3d-2x2x2"),
        ("3d", gpus(8, 2), DEEP, Mesh(pp=2, dp_shard=2, tp=4), "3d-2x2x4"),
    ],
)
def test_stages_lie_over_nodes_and_the_rest_inside(strategy, inventory, profile, mesh, name):
    choice = choose_plan(line(strategy=strategy, batch=64), SITE, inventory, profile)
    assert (choice.mesh, choice.name) == (mesh, name)


def test_micro_batches_fill_the_pipeline_unless_the_line_says_how_large_they_are():
    assert chosen().micro_batch == 4, "16 micro-batches for four stages"
    assert chosen(micro_batch=8).micro_batch == 8


@pytest.mark.parametrize(
    ("profile", "compiled", "schedule", "idle"),
    [
        (DEEP, False, "interleaved_zero_bubble", 0.0303),
        (DEEP, True, "interleaved_1f1b", 0.0857),
        (replace(DEEP, blocks=7), False, "1f1b", 0.1579),
        (replace(DEEP, blocks=None), False, "1f1b", 0.1579),
    ],
)
def test_the_schedule_that_leaves_least_idle_is_chosen_and_forecast(profile, compiled, schedule, idle):
    choice = chosen(profile=profile, compiled=compiled)
    assert (choice.pp_schedule, choice.forecast.bubble) == (schedule, idle)


def test_without_a_pipeline_nothing_is_forecast_about_one():
    choice = choose_plan(line(), SITE, cpu(2), SMALL)
    assert (choice.pp_schedule, choice.forecast.bubble) == ("1f1b", None)


def test_a_stage_holds_its_share_of_the_state():
    whole = choose_plan(line(), SITE, cpu(1), SMALL).forecast.memory_bytes
    assert chosen(profile=replace(DEEP, activation_bytes_per_sample=0)).forecast.memory_bytes == whole // 4


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"profile": replace(DEEP, blocks=3)},
            r"4 stages, more than the model's 3 blocks; train.mesh.pp up to 3 works",
        ),
        (
            {"schedule": "zbv", "profile": replace(DEEP, blocks=6)},
            r"zbv has 8 stages, more than the model's 6 blocks; train.mesh.pp up to 3 works",
        ),
        (
            {"schedule": "1f1b", "micro_batch": 32},
            r'"1f1b" on 4 ranks wants as many micro-batches as stages, 4, or more; found 2; micro_batch 8 or 16 works',
        ),
        ({"schedule": "zbv", "compiled": True}, r'wanted false with pp_schedule = "zbv"'),
    ],
)
def test_a_pipeline_that_cannot_run_is_refused_with_what_works(options, said):
    with pytest.raises(ConfigError, match=said):
        chosen(**options)


def test_few_ranks_make_no_three_axes_and_a_command_no_stages():
    with pytest.raises(ConfigError, match="wants 2 stages of four ranks or more, in pairs, found 4 ranks; 8 work"):
        choose_plan(line(strategy="3d"), SITE, gpus(4), DEEP)
    with pytest.raises(ConfigError, match='"pp" wants two ranks or more, found 1'):
        choose_plan(line(strategy="pp", ranks=1), SITE, cpu(1), DEEP)
    command = replace(line(strategy="pp"), project=ProjectTable(name="demo", command=("python", "train.py")))
    with pytest.raises(ConfigError, match=r"train\.mesh\.pp: wanted 1 for a command, found 2"):
        choose_plan(command, SITE, cpu(2), DEEP)


def test_a_proof_in_stages_has_micro_batches_for_them():
    asked = line(batch=16)
    made = make_plan(asked, choose_plan(asked, SITE, cpu(2), SMALL), run="r", run_prefix="p", data=DataSource())
    second = make_proof_plan(made, "pp", inventory=cpu(2))
    assert (second.mesh, second.micro_batch, second.accumulation) == (Mesh(pp=2), 8, 2)
