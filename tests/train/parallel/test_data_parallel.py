"""What DDP cannot do with a model is said by name, before it waits for gradients that never come; what it leaves."""

import gc
import weakref

import pytest
import torch
from tests.train.gang import tiny_plan
from torch import nn

from gangline.errors import ConfigError
from gangline.spec.plan import ProgramSpec
from gangline.train.account.clock import WaitMeter
from gangline.train.parallel.data_parallel import Replicated, require_all_used
from gangline.train.runtime.rendezvous import join_alone, leave


class Spare(nn.Module):
    """Has a layer that its forward never calls, and a frozen one."""

    def __init__(self):
        super().__init__()
        self.used, self.spare, self.frozen = nn.Linear(2, 1), nn.Linear(2, 1), nn.Linear(2, 1)
        self.frozen.requires_grad_(False)

    def forward(self, x):
        return self.used(x)


def test_parameters_that_take_no_part_in_the_loss_are_named():
    model = Spare()
    with pytest.raises(ConfigError, match=r"spare\.weight, spare\.bias take no part in the loss; .* \"fsdp\""):
        require_all_used(model(torch.ones(3, 2)).sum(), model)


def test_frozen_and_used_parameters_are_no_reason():
    model = Spare()
    model.spare.requires_grad_(False)
    require_all_used(model(torch.ones(3, 2)).sum(), model)


def test_training_that_breaks_off_in_a_backward_pass_is_collected_with_its_links():
    """Else peers that wait for this rank wait for ever."""
    join_alone("cpu")
    try:
        wrapped = Replicated(nn.Linear(2, 1), device=torch.device("cpu"), bucket_bytes=None, waits=WaitMeter())
        loss = wrapped.model(torch.ones(3, 2)).sum()
        wrapped.watch(loss)
        left = weakref.ref(wrapped.model)
        del wrapped, loss
        gc.collect()
        assert left() is None
    finally:
        leave()


UNUSED = """
from torch import nn
from model import Net, Tiny as Base

class Tiny(Base):
    def build_model(self, options):
        model = Net(**options)
        model.spare = nn.Linear(2, 2)
        return model
"""


@pytest.mark.parametrize(("strategy", "codes"), [("ddp", [10, 10]), ("fsdp", [0, 0])])
def test_a_gang_with_unused_parameters_trains_under_fsdp_and_is_reported_under_ddp(make_gang, strategy, codes):
    gang = make_gang()
    (gang.code / "spare.py").write_text(UNUSED)
    assert gang.run(tiny_plan(strategy, steps=2, program=ProgramSpec(task="spare:Tiny"))) == codes, gang.log()
    reported = gang.log()
    assert ("spare.weight, spare.bias take no part in the loss" in reported) == (strategy == "ddp")
