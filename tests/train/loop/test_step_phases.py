"""Phases of a step on a GPU, which computes on after its calls returned; a clock stands for its work."""

from types import SimpleNamespace

import torch
from torch.amp.grad_scaler import GradScaler

from gangline.train.account.clock import PhaseClock, WaitMeter
from gangline.train.loop.step import Update
from gangline.train.parallel.data_parallel import SingleRank
from gangline.train.task import Loss


class Mark:
    """An event of a stream whose work ends seven seconds after it was asked for."""

    def __init__(self, now):
        self.now, self.order = now, []

    def record(self):
        self.order.append("recorded")

    def synchronize(self):
        self.order.append("awaited")
        self.now[0] += 7.0


def test_what_a_gpu_computes_after_the_call_of_backward_is_not_waiting_for_others():
    now = [0.0]
    clock, mark = PhaseClock("start", lambda: now[0]), Mark(now)
    context = SimpleNamespace(
        plan=SimpleNamespace(clip_norm=None, world_size=1, buffers="average"), device=torch.device("cpu"),
        counts_loss=True, grad_divisor=1, meshes=SimpleNamespace(group=lambda _: None), waits=WaitMeter(), clock=clock,
        phase=clock.switch,
    )  # fmt: skip
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    update = Update(SingleRank(model), optimizer, context, scaler=GradScaler("cpu", enabled=False), reference=1.0)
    update.event = lambda: mark
    for is_last in (False, True):
        update.backward(Loss(total=model(torch.ones(1, 2)).sum(), weight=1.0), is_last=is_last)
        assert mark.order == ["recorded"] * is_last
    update.sum_up()
    seconds = clock.lap()
    assert mark.order == ["recorded", "awaited"]
    assert (seconds["backward"], seconds.get("wait", 0.0)) == (7.0, 0.0)
