"""What cannot be sharded is refused by name, in the plan stage and by the ranks."""

import pytest
import torch
from tests.train.gang import tiny_plan
from torch import nn

from gangline.errors import ConfigError
from gangline.measure.model_facts import obstacles
from gangline.spec.plan import ProgramSpec
from gangline.train.model.wrap import require_shardable
from gangline.train.parallel.model_parts import find_blocks
from gangline.train.task import ParallelHints

HINTS = ParallelHints(blocks="layers.*")


class Net(nn.Module):
    def __init__(self, *, tied=False, shared=False, scalar=False):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)) for _ in range(2))
        self.first, self.last = nn.Linear(2, 2), nn.Linear(2, 2)
        if tied:
            self.last.weight = self.first.weight
        if shared:
            self.layers[1][0] = self.layers[0][0]
        if scalar:
            self.scale = nn.Parameter(torch.tensor(1.0))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"scalar": True}, r"scale of Net is a single number.* shape \(1,\)"),
        ({"shared": True}, r"layers\.1\.0\.weight of Net is layers\.0\.0\.weight under another name, in another block"),
    ],
)
def test_it_is_named_with_what_works(options, said):
    model = Net(**options)
    with pytest.raises(ConfigError, match=said):
        require_shardable(model, find_blocks(model, HINTS))
    assert obstacles(model, HINTS).keys() >= {"dp_shard", "cp"}


@pytest.mark.parametrize("options", [{}, {"tied": True}])
def test_weights_tied_outside_of_blocks_stay_together(options):
    model = Net(**options)
    require_shardable(model, find_blocks(model, HINTS))
    assert "dp_shard" not in obstacles(model, HINTS)


SCALED = """
import torch
from torch import nn
from model import Net, Tiny as Base

class Tiny(Base):
    def build_model(self, options):
        model = Net(**options)
        model.scale = nn.Parameter(torch.tensor(1.0))
        return model
"""


def test_ranks_end_with_the_number_of_a_wrong_line(make_gang):
    gang = make_gang()
    (gang.code / "scaled.py").write_text(SCALED)
    assert gang.run(tiny_plan("fsdp", steps=2, program=ProgramSpec(task="scaled:Tiny"))) == [10, 10], gang.log()
