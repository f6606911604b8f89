"""Blocks that data leave out: ranks that meet in blocks say so at once, replicas that look for them train on."""

from dataclasses import replace

import pytest
import torch
from tests.train.gang import stored_model, tiny_plan
from torch import nn

from gangline.measure.model_facts import obstacles
from gangline.spec.plan import ProgramSpec
from gangline.train.task import ParallelHints

CODE = """
import os
from dataclasses import replace

from model import Net, Tiny


class Gated(Net):
    '''Some batches skip a layer.'''

    def forward(self, x):
        skips = self.training and float(x.mean()) > 0
        x = self.first(x)
        for layer in self.layers[:1] if skips else self.layers:
            x = layer(x)
        return self.last(x).squeeze(-1)


class Turned(Net):
    '''One rank takes its layers in another order.'''

    def forward(self, x):
        x = self.first(x)
        for layer in reversed(self.layers) if os.environ["RANK"] == "1" else self.layers:
            x = layer(x)
        return self.last(x).squeeze(-1)


class GatedPoints(Tiny):
    def build_model(self, options):
        return Gated(**options)


class SearchedPoints(GatedPoints):
    hints = replace(Tiny.hints, skips=True)


class TurnedPoints(Tiny):
    def build_model(self, options):
        return Turned(**options)
"""


@pytest.fixture
def gated(make_gang):
    """Function that runs a task of `CODE`; the gang, and its ranks' exit codes."""

    def run(task, strategy, **changes):
        gang = make_gang()
        (gang.code / "gated.py").write_text(CODE)
        wrapping = "ddp" if strategy == "zero1" else strategy
        plan = tiny_plan(wrapping, steps=6, program=ProgramSpec(task=f"gated:{task}"), **changes)
        return gang, gang.run(replace(plan, strategy=strategy))

    return run


def said(gang, codes):
    """By the ranks that ended by themselves."""
    return "".join(gang.events(rank, "done")[-1]["reason"] for rank, code in enumerate(codes) if code == 10)


@pytest.mark.parametrize("strategy", ["ddp", pytest.param("zero1", marks=pytest.mark.slow)])
def test_replicas_that_search_train_as_one_rank(gated, strategy):
    gang, codes = gated("SearchedPoints", strategy)
    alone, code = gated("GatedPoints", "none")
    assert (codes, code) == ([0, 0], [0]), gang.log()
    found, wanted = (stored_model(each, each.result().checkpoint) for each in (gang, alone))
    for name, tensor in wanted.items():
        torch.testing.assert_close(found[name], tensor, atol=1e-6, rtol=0, msg=lambda text, n=name: f"{n}: {text}")


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        (
            "ddp",
            "layers.1.inner.weight, layers.1.inner.bias, layers.1.outer.weight and 1 more take no part in the loss",
        ),
        (
            "fsdp",
            "took no part in the loss: layers.1; under train.strategy 'fsdp' all ranks synchronize in every block",
        ),
        pytest.param("hsdp", "took no part in the loss: layers.1; ", marks=pytest.mark.slow),
    ],
)
def test_a_rank_that_leaves_a_block_out_ends_by_itself_and_names_it(gated, strategy, words):
    gang, codes = gated("GatedPoints", strategy, **({"global_batch": 16} if strategy == "hsdp" else {}))
    assert 10 in codes, gang.log()
    assert 0 not in codes
    assert words in said(gang, codes)
    assert "ParallelHints(skips=True)" in said(gang, codes)


def test_ranks_that_call_blocks_in_another_order_are_refused(gated):
    """Shards of equal sizes would be taken for each other's."""
    gang, codes = gated("TurnedPoints", "fsdp")
    assert codes == [10, 10], gang.log()
    assert "other ranks called their blocks in another order" in said(gang, codes)


def test_blocks_that_data_leave_out_are_not_shared_out(gated):
    gang, codes = gated("SearchedPoints", "fsdp")
    assert codes == [10, 10], gang.log()
    assert "hints.skips says that data decide which parameters are used" in said(gang, codes)
    model = nn.Sequential(nn.ModuleList([nn.Linear(2, 2)]))
    assert "hints.skips" in obstacles(model, ParallelHints(skips=True))["dp_shard"]
    assert "dp_shard" not in obstacles(model, ParallelHints())
