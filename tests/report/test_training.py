"""What a training went through is said in words, on every surface, and a loss is never passed over."""

from dataclasses import replace

import pytest
from tests.report.records import passed

from gangline.report.run.html import render_html
from gangline.report.run.markdown import render_markdown
from gangline.report.run.terminal import page
from gangline.report.training_facts import training_rows
from gangline.spec.measurements import Metric, Samples, StartedFrom, Training
from gangline.spec.program_files import RuntimeReport
from gangline.spec.record import StageInfo

HARD = Training(
    flops_per_second=1.5e15, resumes={"store": 1, "peer": 2, "living": 3}, rollbacks=1, steps_redone=41,
    samples=Samples(trained=12_800, lost=16, repeated=4, skipped=32),
)  # fmt: skip


def hard():
    base = passed()
    gpus = replace(base.plan, device="cuda", device_name="NVIDIA H200", precision="bf16", world_size=4)
    return replace(
        base,
        plan=replace(gpus, forecast=replace(gpus.forecast, device_flops=989e12)),
        metrics={"mfu": Metric(value=0.379)},
        gang=replace(base.gang, generations=7, restarts=6),
        training=HARD,
    )


def test_everything_it_went_through_is_said():
    assert dict(training_rows(hard())) == {
        "speed": "1500 Tflop/s of model arithmetic, MFU 38 % of 4 × NVIDIA H200 in bf16 (989 Tflop/s each)",
        "starts": "7 generations, 6 restarts; resumed twice from the memory of other nodes, once from the store, "
        "3 times from the living replicas; 1 rollback",
        "samples": "12,800 trained, 16 lost, 4 repeated; 32 skipped as not finite; 41 steps done again",
        "optimizer": "2.2 % of the time in steps",
    }


def test_gangs_before_the_last_are_counted():
    record = hard()
    train = StageInfo(state="done", outputs={"attempts": 2})
    said = dict(training_rows(replace(record, stages=record.stages | {"train": train})))["starts"]
    assert said.startswith("2 gangs, the last with 7 generations, 6 restarts;")


def test_a_start_is_said_with_its_checkpoint_and_what_was_converted():
    key = "runs/p/c/r/gang/checkpoints/step-00000120"
    for converted, said in (
        (0, ""),
        (1, ", 1 fused parameter split or joined"),
        (8, ", 8 fused parameters split or joined"),
    ):
        start = StartedFrom(checkpoint=key, step=120, converted=converted)
        starts = dict(training_rows(replace(hard(), training=replace(HARD, started_from=start))))["starts"]
        assert starts.startswith(f"7 generations, 6 restarts, from step 120 of {key}{said}; resumed")


@pytest.mark.parametrize(
    ("name", "devices"), [("NVIDIA Grid", "NVIDIA Grid"), ("", "this GPU"), ("<b>\x1b[31mX", "<b>X")]
)
def test_where_no_peak_is_known_the_device_is_named(name, devices):
    record = hard()
    unknown = replace(record, metrics={}, plan=replace(record.plan, device_name=name))
    assert dict(training_rows(unknown))["speed"].endswith(f"MFU not known: no published peak for {devices} in bf16")


def test_devices_are_those_that_ranks_found_not_those_of_the_plan():
    speed = dict(training_rows(replace(hard(), ran=RuntimeReport(gpus=("NVIDIA A", "NVIDIA B")))))["speed"]
    assert "of 4 × NVIDIA A and NVIDIA B in bf16" in speed


@pytest.mark.parametrize("draw", [page, render_markdown, render_html])
def test_every_surface_says_it(draw):
    assert "16 lost, 4 repeated" in draw(hard())
    assert "none repeated" in draw(passed())
    assert "repeated" not in draw(replace(passed(), training=None))


def test_one_process_has_no_traffic_to_other_ranks():
    base = passed()
    alone = replace(base, plan=replace(base.plan, world_size=1))
    assert "traffic" in dict(training_rows(base))
    assert "traffic" not in dict(training_rows(alone))
