"""One worker whose changes are merged whole trains what the plain loop trains."""

from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from tests.train.parameters.objects import KEY
from tests.train.parameters.parts import run_plan
from torch import nn

from gangline.planner.plans import server_plan, worker_plans
from gangline.storage.folder.store import FolderStore
from gangline.train.parameters.exchange import StoreExchange
from gangline.train.parameters.layout import ParameterKeys, ParameterStore
from gangline.train.parameters.server import MergeServer
from gangline.train.parameters.worker import WorkerStep

STEPS, BLOCK = 60, 4
GRID = 2.0**-14
"""Weights on this grid have differences that float32 represents."""


@dataclass
class Progress:
    step: int = 0
    cursor: int = 0


class Training:
    """A small network with buffers, and an optimizer whose moments outlive blocks."""

    def __init__(self, *, on_grid):
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(3, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.02)
        self.on_grid = on_grid
        self.snap()

    def step(self, number):
        x = torch.randn(16, 3, generator=torch.Generator().manual_seed(number))
        loss = (self.model(x).squeeze(1) - x.prod(1)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.snap()
        return float(loss.detach())

    @torch.no_grad()
    def snap(self):
        for each in self.model.parameters() if self.on_grid else ():
            each.copy_((each / GRID).round() * GRID)

    @property
    def weights(self):
        floats = [each for each in self.model.state_dict().values() if each.is_floating_point()]
        return torch.cat([each.flatten() for each in floats]).clone()


def context_of(plan, store):
    return SimpleNamespace(
        plan=plan, store=store, key=KEY, rank=0, gang="g", generation=0, stop_asked=False, metrics=None,
        phase=lambda name: None, events=SimpleNamespace(emit=lambda *_, **__: None),
        clock=SimpleNamespace(switch=lambda name: None, during=lambda name: nullcontext()),
    )  # fmt: skip


def train_by_blocks(folder, monkeypatch, training, **changes):
    """Steps that were trained and merged, in order, without a thread."""
    plan = run_plan(steps=STEPS, workers=1, quorum=1, block_steps=BLOCK, shard_bytes=64, max_ahead=1, **changes)
    store = FolderStore(folder)
    server = MergeServer(
        context_of(server_plan(plan), store), ParameterStore(store, ParameterKeys.of(plan), plan.run, KEY)
    )
    step, progress, trained = WorkerStep(context_of(worker_plans(plan)[0], store), training.model), Progress(), []
    monkeypatch.setattr(StoreExchange, "start", lambda exchange: None)

    def wait(exchange, seconds):
        exchange.once()
        while server.once():
            pass
        exchange.once()

    monkeypatch.setattr(StoreExchange, "wait", wait)
    assert step.begin(progress)
    while progress.step < STEPS:
        step.agree(0.0, loss=training.step(progress.step), weight=1.0, device=torch.device("cpu"))
        trained.append(progress.step)
        progress.step += 1
        if progress.step % BLOCK == 0:
            step.step(due=True)
        assert step.advance(progress)
    assert step.saves
    return trained


@pytest.fixture
def plain():
    def trained(**options):
        training = Training(**options)
        for number in range(STEPS):
            training.step(number)
        return training.weights

    return trained


@pytest.mark.proves(
    "parameter_server", oracle="the plain loop; weights on a grid, so that differences are exact", gate="same bits"
)
def test_one_worker_with_plain_settings_has_the_bits_of_the_plain_loop(tmp_path, monkeypatch, plain):
    training = Training(on_grid=True)
    assert train_by_blocks(tmp_path, monkeypatch, training, outer_lr=1.0, momentum=0.0) == list(range(STEPS))
    assert torch.equal(training.weights, plain(on_grid=True))


def test_one_worker_differs_from_the_plain_loop_by_the_rounding_of_its_changes_alone(tmp_path, monkeypatch, plain):
    training = Training(on_grid=False)
    train_by_blocks(tmp_path, monkeypatch, training, outer_lr=1.0, momentum=0.0)
    torch.testing.assert_close(training.weights, plain(on_grid=False), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    "changes", [{"outer_lr": 0.7, "momentum": 0.0}, {"outer_lr": 1.0, "momentum": 0.1}, {"kind": "int8"}]
)
def test_other_settings_train_something_else(tmp_path, monkeypatch, plain, changes):
    training = Training(on_grid=True)
    train_by_blocks(tmp_path, monkeypatch, training, **{"outer_lr": 1.0, "momentum": 0.0} | changes)
    assert not torch.allclose(training.weights, plain(on_grid=True), atol=1e-4)
