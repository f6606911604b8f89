"""What a matrix optimizer saved under one layout every other opens bit for bit, and goes on with.

Momentum is in the layout of its parameter, factors are at owners, which the reader chooses anew.
"""

import pytest
import torch
import torch.distributed as dist
from tests.checkpoint.layouts import ALL, Layout, wrapped
from tests.checkpoint.pairs import Saved, assert_opens
from tests.optim.executors.layouts import Whiten
from torch.distributed.optim import ZeroRedundancyOptimizer

from gangline.optim.matrix_optimizer import MatrixOptimizer
from gangline.optim.plan.matrix import FragmentSplit

pytestmark = pytest.mark.long


def build(layout, rank, *, seed):
    """Linear layers of the blocks by the matrix rule, half of them in two fragments; the rest by AdamW."""
    model = wrapped(layout, rank, seed=seed)
    trained = {name: each for name, each in model.named_parameters() if each.requires_grad}
    matrices = [name for name, each in trained.items() if name.startswith("blocks") and each.ndim == 2]
    others = [name for name in trained if name not in matrices]
    groups = [
        {"params": [trained[name] for name in matrices], "names": matrices, "kind": "matrix",
         "splits": {name: FragmentSplit(kind="gate_up_interleaved") for name in matrices if "up" in name}},
        {"params": [trained[name] for name in others], "names": others, "kind": "elementwise"},
    ]  # fmt: skip
    shares = layout.kind == "zero1"
    return model, MatrixOptimizer(
        groups, rule=Whiten(every=2), replicas=dist.group.WORLD if layout.kind in ("ddp", "zero1") else None,
        elementwise=_zero1 if shares else torch.optim.AdamW, shares_state=shares,
    )  # fmt: skip


def _zero1(groups):
    return ZeroRedundancyOptimizer(groups, torch.optim.AdamW)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return Saved(tmp_path_factory.mktemp("pairs"), build)


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        (Layout("fsdp", 4), Layout("fsdp_tp", 4)), (Layout("fsdp_tp", 4), Layout("one", 1)),
        (Layout("zero1", 2), Layout("tp", 2)), (Layout("one", 1), Layout("zero1", 2)),
        (Layout("pp", 2), Layout("hsdp", 4)),
    ],
    ids=str,
)  # fmt: skip
def test_checkpoint_opens_bit_equal_under_another_layout(saved, writer, reader):
    assert_opens(saved, reader, [writer])


@pytest.mark.slow
@pytest.mark.parametrize("reader", ALL, ids=str)
def test_checkpoint_of_every_layout_opens_bit_equal_under_every_other(saved, reader):
    assert_opens(saved, reader, ALL)
