"""Options that save memory: taken as asked, found when nothing else fits, refused where they would do nothing."""

from dataclasses import replace

import pytest
from tests.planner.cases import SITE, SMALL, USABLE, cpu, gpus, line, model_of
from tests.planner.transformers import EIGHT, H100, transformer

from gangline.errors import ConfigError
from gangline.planner.choice import choose_plan
from gangline.planner.cost.memory import kept_share
from gangline.planner.plans import make_plan
from gangline.planner.proof import make_proof_plan
from gangline.spec.config.line import MemoryTable, MeshTable, ProjectTable
from gangline.spec.data_source import DataSource
from gangline.spec.plan import Memory


def plan(asked, inventory, profile=SMALL):
    choice = choose_plan(asked, SITE, inventory, profile)
    return make_plan(asked, choice, run="demo-1", run_prefix="runs/demo", data=DataSource(digest="d"))


def test_what_the_line_asks_for_reaches_the_ranks():
    asked = MemoryTable(activation_checkpointing="every_3", loss_chunks=8, offload="optimizer_nvme")
    made = plan(line(memory=asked), cpu(2))
    assert made.memory == Memory(activation_checkpointing="every_3", loss_chunks=8, offload="optimizer_nvme")


def test_automatic_options_leave_everything_where_it_is():
    assert plan(line(), cpu(2)).memory == Memory()


@pytest.mark.parametrize(
    ("activations", "word"), [(0.1, "none"), (0.8, "none"), (1.05, "selective"), (3.0, "full"), (None, "none")]
)
def test_activations_are_recomputed_only_where_a_sample_does_not_fit_otherwise(activations, word):
    """Activations of one sample, in devices; the state of the model fills a tenth of one."""
    size = None if activations is None else int(activations * USABLE)
    profile = replace(model_of(0.1), activation_bytes_per_sample=size)
    made = plan(line(strategy="ddp"), gpus(2), profile)
    assert made.memory.activation_checkpointing == word


def test_forecast_counts_what_is_kept():
    profile = replace(SMALL, activation_bytes_per_sample=1_000_000)
    needs = {
        word: plan(line(memory=MemoryTable(activation_checkpointing=word)), cpu(2), profile).forecast.memory_bytes
        for word in ("none", "selective", "full", "every_2")
    }
    assert needs["full"] < needs["every_2"] < needs["selective"] < needs["none"]
    assert kept_share("every_1") == pytest.approx(kept_share("full"))


def test_shared_state_needs_less_than_a_whole_copy():
    needs = {name: plan(line(strategy=name), gpus(4)).forecast.memory_bytes for name in ("ddp", "zero1")}
    assert needs["zero1"] / needs["ddp"] == pytest.approx(0.625)


@pytest.mark.parametrize(
    ("strategy", "offload", "inventory", "message"),
    [
        ("fsdp", "cpu", cpu(2), '"cpu" is for accelerators, here everything is in host memory'),
        ("fsdp", "activations", cpu(2), '"activations" is for accelerators'),
        ("ddp", "cpu", gpus(2), '"cpu" moves shards, and ddp-2 has none; fsdp has'),
        ("fsdp", "optimizer_nvme", gpus(2), '"optimizer_nvme" is for parameters in host memory, these are on cuda'),
    ],
)
def test_offload_that_would_move_nothing_is_refused(strategy, offload, inventory, message):
    with pytest.raises(ConfigError, match=f"^train.memory.offload: {message}"):
        choose_plan(line(strategy=strategy, memory=MemoryTable(offload=offload)), SITE, inventory, SMALL)


def test_automatic_strategy_is_one_that_the_offload_is_for():
    assert plan(line(memory=MemoryTable(offload="cpu")), gpus(2)).strategy == "fsdp"


def test_second_plan_moves_shards_only_where_it_has_some():
    made = plan(line(strategy="fsdp", memory=MemoryTable(offload="cpu")), gpus(2))
    second = make_proof_plan(made)
    assert (second.strategy, second.memory.offload) == ("ddp", "none")


def test_chunks_of_a_commands_loss_are_refused():
    asked = line(memory=MemoryTable(loss_chunks=4))
    asked = replace(asked, project=ProjectTable(name="demo", command=("python", "train.py")))
    with pytest.raises(ConfigError, match=r"^train\.memory\.loss_chunks: wanted 1, found 4: a command has a loss"):
        choose_plan(asked, SITE, cpu(2), None)


def test_chunks_of_a_pipelines_loss_are_refused():
    asked = line(mesh=MeshTable(pp=2), strategy="explicit", memory=MemoryTable(loss_chunks=4))
    with pytest.raises(ConfigError, match=r"^train\.memory\.loss_chunks: wanted 1 in a pipeline, found 4"):
        choose_plan(asked, SITE, gpus(2), SMALL)


def test_compiled_blocks_keep_their_activations():
    with pytest.raises(ConfigError, match=r"^train\.memory\.offload: .activations. does not work with"):
        choose_plan(line(compile=True, memory=MemoryTable(offload="activations")), SITE, gpus(2), SMALL)


def test_gradients_are_reduced_each_pass_before_the_host_or_a_cut_has_to_help():
    """Whole gradients of 8e9 parameters are 32 GB, which 60 GB do not hold beside all else."""
    profile = transformer(**EIGHT, sequence=4096)
    choice = choose_plan(line(batch=256), H100, gpus(8, memory=60e9), profile)
    assert (choice.name, choice.memory.gradient_sync) == ("fsdp-8", "each")
    assert choice.reason.endswith("gradients reduced after each pass")
    asked = line(batch=256, memory=MemoryTable(gradient_sync="last"))
    assert choose_plan(asked, H100, gpus(8, memory=60e9), profile).memory.gradient_sync == "last"
    assert choose_plan(line(batch=256), H100, gpus(8), profile).memory.gradient_sync == "last"
