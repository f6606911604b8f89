"""What was merged is taken within a block, and the block's own progress is neither lost nor pushed twice."""

import pytest
import torch
from tests.train.parameters.objects import KEY
from tests.train.parameters.parts import run_plan
from tests.train.parameters.test_one_worker import Progress, Training, context_of

from gangline.planner.plans import server_plan, worker_plans
from gangline.storage.folder.store import FolderStore
from gangline.train.parameters.exchange import StoreExchange
from gangline.train.parameters.layout import ParameterKeys, ParameterStore
from gangline.train.parameters.server import MergeServer
from gangline.train.parameters.worker import TAKES, WorkerStep

BLOCK = 8
EVERY = BLOCK // TAKES


class Worker:
    """A worker without a thread, and how far its own steps moved its weights."""

    def __init__(self, plan, store):
        self.training, self.progress = Training(on_grid=False), Progress()
        self.step = WorkerStep(context_of(plan, store), self.training.model)
        self.exchange, self.sent = self.step._exchange, []
        send = self.exchange.send
        self.exchange.send = lambda push, changes: (self.sent.append((push, changes)), send(push, changes))
        assert self.step.begin(self.progress)
        self.moved = torch.zeros_like(self.row)

    @property
    def row(self):
        return self.step._row.read()

    def train(self, steps):
        for _ in range(steps):
            before = self.row
            self.step.agree(0.0, loss=self.training.step(self.progress.step), weight=1.0, device=torch.device("cpu"))
            self.moved += self.row - before
            self.progress.step += 1
            self.step.step(due=self.progress.step % BLOCK == 0)
            assert self.step.advance(self.progress)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Two workers and a server over a folder; each talks to the store when it is asked to."""
    monkeypatch.setattr(StoreExchange, "start", StoreExchange.once)
    plan, store = run_plan(steps=80, workers=2, quorum=1, block_steps=BLOCK, outer_lr=1.0, momentum=0.0), None
    store = FolderStore(tmp_path)
    objects = ParameterStore(store, ParameterKeys.of(plan), plan.run, KEY)
    server = MergeServer(context_of(server_plan(plan), store), objects)
    first, second = (Worker(each, store) for each in worker_plans(plan))
    return server, first, second


def merge(server, pusher):
    """What `pusher` has sent is merged."""
    pusher.exchange.once()
    while server.once():
        pass


@pytest.mark.row("PS5")
def test_what_others_pushed_is_taken_within_a_block_under_its_progress(run):
    server, first, second = run
    first.train(EVERY - 1)
    second.train(BLOCK)
    merge(server, second)
    first.exchange.once()
    start = first.row - first.moved
    assert first.step._versions == (0, 0), "of parameters and of buffers"
    first.train(1)
    merged = server._mergers[0]._weights
    own = slice(0, len(merged))
    assert not torch.allclose(merged, start[own])
    torch.testing.assert_close(first.row[own], merged + first.moved[own], atol=1e-6, rtol=0)
    assert first.step._versions == (0, 0), "the age of a push counts from the begin of its block"


@pytest.mark.row("PS5")
def test_push_has_the_progress_of_its_block_alone_whatever_was_taken_within_it(run):
    server, first, second = run
    for _ in range(2):
        first.train(EVERY)
        second.train(BLOCK)
        merge(server, second)
        first.exchange.once()
    first.train(BLOCK - 2 * EVERY)
    ((push, changes),) = first.sent
    values = changes[0]["values"]
    torch.testing.assert_close(values, -first.moved[: len(values)], atol=1e-6, rtol=0)
    assert (push.block, push.versions) == (0, (0, 0))


def test_nothing_is_taken_between_the_quarters_of_a_block(run):
    server, first, second = run
    first.train(EVERY)
    second.train(BLOCK)
    merge(server, second)
    first.exchange.once()
    first.train(EVERY - 1)
    assert first.exchange.has_arrivals
    first.train(1)
    assert not first.exchange.has_arrivals
