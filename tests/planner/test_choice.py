"""DDP or FSDP by what is there: the table of the reference, each choice with its words."""

from dataclasses import replace

import pytest
from tests.planner.cases import SITE, SMALL, cpu, gpus, line, model_of

from gangline.errors import ConfigError
from gangline.planner.choice import choose_plan
from gangline.planner.layouts.layout import program_decides
from gangline.spec.config.line import MemoryTable, MeshTable, ProjectTable
from gangline.spec.mesh import Mesh
from gangline.spec.profile import MeasuredRun, ModelProfile

TABLE = {
    "1 core": (cpu(1), SMALL, "none", "one rank has nothing to share"),
    "1 GPU": (gpus(1), SMALL, "none", "one rank has nothing to share"),
    "2 cores": (cpu(2), SMALL, "ddp-2", "fits every rank whole, nothing to shard"),
    "64 cores": (cpu(64, 2e11), SMALL, "ddp-2", "fits every rank whole, nothing to shard"),
    "8 GPUs that each hold the state": (gpus(8), SMALL, "ddp-8", "fits every rank whole, nothing to shard"),
    "2 nodes of 8 that each hold it": (gpus(8, 2), SMALL, "ddp-16", "fits every rank whole, nothing to shard"),
    "state larger than a GPU": (gpus(8), model_of(2.1), "fsdp-8", "needs 2.1 times one device, over 8 it takes 0.3"),
    "2 nodes, a node holds the state": (
        gpus(8, 2),
        model_of(2.1),
        "hsdp-2x8",
        "needs 2.1 times one device, a node holds it: shards stay inside, gradients cross",
    ),
    "2 nodes, a node does not": (
        gpus(8, 2),
        model_of(9),
        "fsdp-16",
        "needs 9.0 times one device, over 16 it takes 0.6",
    ),
}


@pytest.mark.parametrize(("inventory", "profile", "name", "reason"), TABLE.values(), ids=TABLE.keys())
def test_auto_chooses_by_what_is_there_and_says_why(inventory, profile, name, reason):
    choice = choose_plan(line(batch=64), SITE, inventory, profile)
    assert (choice.name, choice.reason) == (name, f"{reason}; activations not known yet")
    assert choice.candidates[0].verdict == "chosen"
    assert choice.num_nodes * choice.procs_per_node == choice.mesh.world_size


def test_nothing_fits_names_the_two_nearest_misses_and_what_would_do():
    with pytest.raises(ConfigError) as caught:
        choose_plan(line(batch=64), SITE, gpus(8), model_of(20))
    message = str(caught.value)
    assert "fsdp-8 needs 2.5 times" in message
    assert "zero2-8 needs 5.0 times" in message
    assert "; 2 nodes like these would fit it, or " in message, "shards of twice as many, on the hosts"
    assert caught.value.exit_code == 10


def test_every_loser_has_one_reason():
    choice = choose_plan(line(batch=64), SITE, gpus(8, 2), SMALL)
    assert [(each.name, each.verdict, each.reason) for each in choice.candidates[1:]] == [
        ("hsdp-2x8", "runner_up", "2 axes where 1 does"),
        ("fsdp-16", "lost", "gathers parameters at each step"),
        ("zero2-16", "lost", "gathers parameters at each step"),
        ("zero1-16", "lost", "averages gradients and also sends out new parameters"),
        ("none", "lost", "one rank of 16: the others stay idle"),
    ]


def test_unknown_model_is_said_and_decided_by_traffic():
    choice = choose_plan(line(), SITE, cpu(2), None)
    assert choice.name == "ddp-2"
    assert choice.reason == "one axis, one all-reduce a step; size of the model not known"
    assert choice.forecast.memory_bytes is None


DDP, FSDP = Mesh(dp_replicate=2), Mesh(dp_shard=2)
CPU = {"device": "cpu", "device_name": "cpu", "precision": "fp32"}
GPU = {"device": "cuda", "device_name": "h100", "precision": "bf16"}


def measured(strategy: str, mesh: Mesh, seconds: float, *, on: dict[str, str], **more) -> MeasuredRun:
    table = {"run": "demo-1", "global_batch": 16, "micro_batch": 8, **on, **more}
    return MeasuredRun(strategy=strategy, mesh=mesh, step_seconds=seconds, **table)


@pytest.mark.parametrize(
    ("ddp", "fsdp", "on", "name", "reason"),
    [
        (1.0, 0.5, CPU, "fsdp-2", "100.0 % slower: 1.0 s against 500 ms a step, measured"),
        (1.0, 0.9, CPU, "ddp-2", "10.0 % faster, within 30 %; gathers parameters at each step"),
        (1.0, 0.9, GPU, "fsdp-2", "11.1 % slower: 1.0 s against 900 ms a step, measured"),
        (1.0, 0.97, GPU, "ddp-2", "3.0 % faster, within 5 %; gathers parameters at each step"),
        (1.0, 1.2, GPU, "ddp-2", "20.0 % slower: 1.2 s against 1.0 s a step, measured"),
        (None, 0.1, GPU, "ddp-2", "gathers parameters at each step"),
    ],
    ids=["beyond what cores repeat", "noise of cores", "outside the band", "inside", "slower", "one measured"],
)
def test_measured_steps_decide_where_both_are_known_and_differ(ddp, fsdp, on, name, reason):
    times = [("ddp", DDP, ddp), ("fsdp", FSDP, fsdp)]
    history = [measured(*each, on=on) for each in times if each[2] is not None]
    choice = choose_plan(line(), SITE, cpu(2) if on is CPU else gpus(2), SMALL, history)
    assert (choice.name, choice.candidates[1].reason) == (name, reason)


@pytest.mark.parametrize("other", [{"model": "another"}, {"global_batch": 32}, {"precision": "bf16"}, {"on": GPU}])
def test_measurement_of_another_question_says_nothing(other):
    table = {"on": CPU, **other}
    choice = choose_plan(line(), SITE, cpu(2), SMALL, [measured("ddp", DDP, 1.0, **table)])
    assert choice.forecast.step_seconds is None


def test_forecast_ties_prefer_one_axis():
    times = [
        MeasuredRun(
            run="r", strategy=strategy, mesh=mesh, device="cuda", device_name="h100", precision="bf16", global_batch=64,
            micro_batch=1, step_seconds=seconds,
        )
        for strategy, mesh, seconds in [
            ("hsdp", Mesh(dp_replicate=2, dp_shard=8), 1.0),
            ("fsdp", Mesh(dp_shard=16), 1.02),
        ]
    ]  # fmt: skip
    choice = choose_plan(line(batch=64), SITE, gpus(8, 2), model_of(2.1), times)
    assert choice.name == "fsdp-16"


def test_a_forecast_counts_what_earlier_runs_took_outside_their_steps():
    """Start, imports and evaluation of a program of few steps are most of its time, whatever the plan."""
    history = [measured("ddp", DDP, 0.22, on=CPU, outside_seconds=each) for each in (80.0, 90.0, None)]
    choice = choose_plan(line(), SITE, cpu(2), SMALL, history)
    assert choice.forecast.wall_seconds == pytest.approx(120 * 0.22 + 85.0)
    stated = replace(SITE, plan=replace(SITE.plan, start_seconds=60.0))
    assert choose_plan(line(), stated, cpu(2), SMALL, history).forecast.wall_seconds == pytest.approx(120 * 0.22 + 25.0)


def test_measured_forecast_says_how_often():
    choice = choose_plan(line(), SITE, cpu(2), SMALL, [measured("ddp", DDP, each, on=CPU) for each in (1.0, 2.0)])
    assert (choice.forecast.step_seconds, choice.forecast.wall_seconds) == (1.5, 180.0)
    assert choice.forecast.origin == "measured n=2"


@pytest.mark.parametrize(
    ("options", "builds", "devices", "fits"),
    [
        ({"rule": "sgd"}, False, 1.8, True),
        ({"rule": "sgd"}, False, 2.2, False),
        ({"rule": "sgd", "momentum": 0.9}, False, 1.2, True),
        ({"rule": "sgd", "momentum": 0.9}, False, 1.8, False),
        ({"rule": "sgd"}, True, 1.8, False),
        ({"rule": "adamw"}, False, 1.2, False),
    ],
)
def test_moments_are_those_of_the_optimizer(options, builds, devices, fits):
    """16 bytes a parameter with AdamW, 12 and 8 with SGD; of an optimizer that the task builds nothing is known."""
    asked = replace(line(ranks=1, strategy="none"), optimizer={"elementwise": options})
    profile = replace(model_of(devices), builds_optimizer=builds)
    if fits:
        assert choose_plan(asked, SITE, gpus(1), profile).name == "none"
        return
    per_parameter = 16 if builds else {"sgd": 12 if "momentum" in options else 8, "adamw": 16}[options["rule"]]
    with pytest.raises(ConfigError, match=f"parameters x {per_parameter} bytes"):
        choose_plan(asked, SITE, gpus(1), profile)


@pytest.mark.parametrize(
    ("strategy", "mesh"),
    [("none", Mesh()), ("ddp", Mesh(dp_replicate=2)), ("fsdp", Mesh(dp_shard=2)), ("zero3", Mesh(dp_shard=2))],
)
def test_asked_strategy_is_honoured(strategy, mesh):
    choice = choose_plan(line(strategy=strategy), SITE, cpu(2), SMALL)
    assert choice.mesh == mesh
    assert choice.reason.startswith("as the line asks")


def test_asked_strategy_that_does_not_fit_is_refused():
    with pytest.raises(ConfigError, match=r"ddp-8 needs 2\.1 times"):
        choose_plan(line(strategy="ddp", batch=64), SITE, gpus(8), model_of(2.1))


@pytest.mark.parametrize(
    ("degrees", "name"),
    [({"dp_shard": 4}, "fsdp-4"), ({"dp_replicate": 4}, "ddp-4"), ({}, "none")],
)
def test_explicit_degrees_become_the_strategy_they_amount_to(degrees, name):
    asked = line(strategy="explicit", mesh=MeshTable(**degrees))
    assert choose_plan(asked, SITE, gpus(4), SMALL).name == name


def test_hsdp_wants_two_nodes():
    with pytest.raises(ConfigError, match="wants two nodes or more, found 1"):
        choose_plan(line(strategy="hsdp"), SITE, gpus(8), SMALL)
    assert choose_plan(line(strategy="hsdp"), SITE, gpus(8, 2), SMALL).name == "hsdp-2x8"


def test_zero2_keeps_the_parameters_gathered():
    choice = choose_plan(line(strategy="zero2", batch=64), SITE, gpus(8), SMALL)
    assert choice.forecast.memory_bytes == 16 * SMALL.parameters // 8 + 2 * SMALL.parameters, "in bf16"
    with pytest.raises(ConfigError, match=r"zero2-8 needs 1\.1 times"):
        choose_plan(line(strategy="zero2", batch=64, memory=MemoryTable(offload="none")), SITE, gpus(8), model_of(4.5))


@pytest.mark.parametrize(
    ("strategy", "nodes", "mesh", "name"),
    [
        ("cp", 1, Mesh(cp=8), "cp-8"), ("cp", 2, Mesh(dp_shard=2, cp=8), "cp-2x8"),
        ("ep", 1, Mesh(dp_shard=8, ep=8), "ep-8"),
    ],
)  # fmt: skip
def test_sequences_are_cut_inside_a_node_and_experts_lie_on_all_ranks(strategy, nodes, mesh, name):
    choice = choose_plan(line(strategy=strategy, batch=64), SITE, gpus(8, nodes), SMALL)
    assert (choice.mesh, choice.name) == (mesh, name)


def test_precision_is_fp32_on_cpu_and_bf16_on_gpus_that_have_it():
    assert choose_plan(line(), SITE, cpu(2), SMALL).precision == "fp32"
    assert choose_plan(line(), SITE, gpus(2), SMALL).precision == "bf16"
    with pytest.raises(ConfigError, match="found CPUs"):
        choose_plan(line(precision="fp16"), SITE, cpu(2), SMALL)


def test_ranks_that_do_not_divide_the_batch_name_the_two_nearest():
    with pytest.raises(ConfigError, match=r"ranks 5 or 10 or global_batch 7 or 14 works"):
        choose_plan(line(ranks=7, batch=10), SITE, cpu(8), SMALL)


def test_auto_never_takes_ranks_that_leave_a_remainder():
    assert choose_plan(line(batch=15), SITE, gpus(8), SMALL).mesh.world_size == 5
    assert choose_plan(line(batch=7), SITE, cpu(2), SMALL).name == "none"


def test_gpus_that_are_not_there_are_refused():
    with pytest.raises(ConfigError, match="wanted 16 GPUs, found 8"):
        choose_plan(line(ranks=16), SITE, gpus(8), SMALL)
    with pytest.raises(ConfigError, match="at least 12 GPUs, found 8"):
        choose_plan(line(ranks=(12, 16), batch=48), SITE, gpus(8), SMALL)


def test_nodes_are_taken_whole():
    with pytest.raises(ConfigError, match="wanted whole nodes of 8 ranks, found 9"):
        choose_plan(line(ranks=9, batch=9), SITE, gpus(8, 2), SMALL)
    assert choose_plan(line(batch=36), SITE, gpus(8, 2), SMALL).mesh.world_size == 12


def test_asked_ranks_may_share_cores_but_not_endlessly():
    assert choose_plan(line(ranks=4), SITE, cpu(2), SMALL).name == "ddp-4"
    with pytest.raises(ConfigError, match="at most 16 ranks a core"):
        choose_plan(line(ranks=64, batch=64), SITE, cpu(2), SMALL)


def test_elastic_pair_takes_the_most_that_is_there():
    assert choose_plan(line(ranks=(1, 4)), SITE, cpu(8), SMALL).mesh.world_size == 4
    assert choose_plan(line(ranks=(1, 4)), SITE, cpu(2), SMALL).mesh.world_size == 2


def test_micro_batch_is_the_share_up_to_sixteen():
    assert choose_plan(line(batch=16), SITE, cpu(2), SMALL).micro_batch == 8
    assert choose_plan(line(batch=96), SITE, cpu(2), SMALL).micro_batch == 16
    assert choose_plan(line(batch=34), SITE, cpu(2), SMALL).micro_batch == 1


def test_known_activations_bound_the_micro_batch():
    profile = ModelProfile(parameters=1000, activation_bytes_per_sample=int(10e9), origin="traced")
    choice = choose_plan(line(batch=64), SITE, gpus(8), profile)
    assert choice.micro_batch == 4
    assert "activations" not in choice.reason


def test_micro_batch_of_the_line_has_to_divide_the_share():
    assert choose_plan(line(batch=16, micro=4), SITE, cpu(2), SMALL).micro_batch == 4
    with pytest.raises(ConfigError, match="found 3; 2 or 4 works"):
        choose_plan(line(batch=16, micro=3, ranks=2), SITE, cpu(2), SMALL)


def command_line(**train):
    asked = line(batch=64, **train)
    return replace(asked, project=ProjectTable(name="demo", command=("python", "train.py")))


@pytest.mark.parametrize(("ranks", "name"), [(1, "1 process"), (2, "2 processes")])
def test_a_program_gets_processes_and_no_strategy(ranks, name):
    choice = choose_plan(command_line(ranks=ranks), SITE, cpu(2))
    assert (choice.name, choice.reason) == (name, "the program decides how")
    assert [each.name for each in choice.candidates] == [name]
    assert program_decides(command_line(ranks=ranks))


def test_a_strategy_that_is_asked_of_a_program_keeps_its_name():
    asked = command_line(ranks=2, strategy="fsdp")
    assert not program_decides(asked)
    assert choose_plan(asked, SITE, cpu(2)).name == "fsdp-2"
