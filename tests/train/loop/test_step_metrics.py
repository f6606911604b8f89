"""What a step amounted to: bytes as the kernel counts them, memory of this process alone, arithmetic as forecast."""

import socket
from dataclasses import replace

import pytest
import torch
from tests.train.gang import make_plan, tiny_plan

from gangline.spec.forecast import Forecast
from gangline.spec.model_picture import ModelPicture
from gangline.spec.plan import CheckpointPolicy
from gangline.train.loop.step_metrics import FIRST_STEPS, StepMetrics, WireMeter, forget_peak, peak_bytes

CPU = torch.device("cpu")


@pytest.fixture
def pair():
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = socket.create_connection(server.getsockname())
        there, _ = server.accept()
    with here, there:
        yield here, there


def send(here, there, count):
    here.sendall(b"x" * count)
    while count:
        count -= len(there.recv(1 << 16))


def test_bytes_to_others_are_counted_once_and_what_is_connected_later_is_not(pair):
    meter = WireMeter()
    send(*pair, 300_000)
    assert meter.take() == 300_000
    assert meter.take() == 0
    send(*reversed(pair), 1000)
    assert meter.take() == 1000


def test_peak_of_a_process_begins_again():
    held = torch.ones(8 << 20)
    before = peak_bytes(CPU)
    del held
    forget_peak()
    assert peak_bytes(CPU) <= before
    now = peak_bytes(CPU)
    held = torch.ones(16 << 20)
    assert peak_bytes(CPU) - now == pytest.approx(held.nbytes, rel=0.2)


def test_the_peak_is_looked_at_in_first_steps_every_tenth_and_the_last():
    plan = make_plan("ddp", steps=25)
    figures = StepMetrics(plan, CPU)
    looked = [step for step in range(5, 26) if figures.of_step(step, 0.1).get("peak_bytes")]
    assert looked == [*range(5, 5 + FIRST_STEPS), 10, 20, 25]


def test_arithmetic_is_said_as_far_as_the_plan_knows():
    plan = make_plan("ddp", global_batch=8)
    assert StepMetrics(plan, CPU).arithmetic(0.5) == {}
    known = replace(plan, forecast=Forecast(flops_per_sample=1e9))
    assert StepMetrics(known, CPU).arithmetic(0.5) == {"flops_per_second": 1.6e10}
    whole = replace(plan, forecast=Forecast(flops_per_sample=1e9, device_flops=1e11))
    assert StepMetrics(whole, CPU).arithmetic(0.5) == {"flops_per_second": 1.6e10, "mfu": 0.08}


def test_another_gpu_than_the_planned_one_has_no_share_of_its_peak(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA A100-SXM4-80GB")
    gpu = torch.device("cuda", 0)
    for planned, share in (("NVIDIA-H100-80GB-HBM3", set()), ("a100", {"mfu"})):
        forecast = Forecast(flops_per_sample=1e9, device_flops=1e11, device_name=planned)
        found = StepMetrics(replace(make_plan("ddp", global_batch=8), forecast=forecast), gpu).arithmetic(0.5)
        assert found.keys() == {"flops_per_second"} | share


def test_steps_of_a_gang_report_what_ddp_sends(make_gang):
    gang = make_gang()
    plan = tiny_plan(
        "ddp", steps=20, model={"width": 64}, checkpoint=CheckpointPolicy(every=100),
        forecast=Forecast(flops_per_sample=1e6),
    )  # fmt: skip
    assert gang.run(plan) == [0, 0], gang.log()
    steps = gang.events(0, "step")
    reported = {each["step"]: each["wire_bytes"] for each in steps if "wire_bytes" in each}
    assert list(reported) == [10, 20]
    parameters = 4 * 64 + 64 + 2 * (64 * 128 + 128 + 128 * 64 + 64) + 64 + 1
    assert reported[20] == pytest.approx(10 * 4 * parameters, rel=0.1), "two ranks: each sends half, then half again"
    assert ModelPicture.from_json((gang.home / "out" / "model.json").read_bytes()).parameters == parameters
    assert all(each["flops_per_second"] > 0 for each in steps)
    assert steps[-1]["peak_bytes"] > 10 << 20
