"""Models that are not what a pipeline trains of them are refused before they train, by what they do differently."""

import pytest
import torch
from tests.checkpoint.forked import run_gang
from tests.train.parallel.deep import CODE, MODEL, TASKS, deep_plan
from torch import nn

from gangline.errors import ConfigError
from gangline.measure.model_traces import traces_of
from gangline.spec.mesh import Mesh
from gangline.spec.plan import ProgramSpec
from gangline.train.parallel.model_parts import find_blocks, find_embed_and_head
from gangline.train.parallel.pipeline.composition import Composition
from gangline.train.task import Loss, ParallelHints

pytestmark = pytest.mark.long

HINTS = ParallelHints(blocks="layers.*", embed="embed", head="head")


class Block(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.inner, self.norm, self.drop = nn.Linear(width, width), nn.BatchNorm1d(width), nn.Dropout(0.5)

    def forward(self, x, scale=1.0):
        return x + scale * self.drop(torch.relu(self.norm(self.inner(x))))


class Straight(nn.Module):
    """What a pipeline can train."""

    def __init__(self, layers=3):
        super().__init__()
        self.first, self.last = nn.Linear(2, 4), nn.Linear(4, 1)
        self.layers = nn.ModuleList(Block() for _ in range(layers))
        self.register_buffer("seen", torch.zeros(()))

    def embed(self, x):
        return torch.tanh(self.first(x))

    def head(self, x):
        return self.last(x.clone()).squeeze(-1)

    def through(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

    def forward(self, x):
        return self.head(self.through(self.embed(x)))


class Rotated(Straight):
    """Makes a table when it is called first, and in another order than its ends do."""

    table = None

    def embed(self, x):
        if self.table is None:
            self.table = torch.arange(4.0).sin()
        return self.first(x) * self.table

    def forward(self, x):
        if self.table is None:
            self.table = torch.arange(4.0).sin()
        first = self.first(x)
        return self.head(self.through(first * self.table).contiguous())


class Skips(Straight):
    def through(self, x):
        for layer in self.layers[::2]:
            x = layer(x)
        return x


class Twice(Straight):
    def through(self, x):
        return super().through(super().through(x))


class Backwards(Straight):
    def through(self, x):
        for layer in reversed(self.layers):
            x = layer(x)
        return x


class Past(Straight):
    """A connection past all blocks."""

    def forward(self, x):
        first = self.embed(x)
        return self.head(self.through(first) + first)


class Between(Straight):
    def through(self, x):
        for layer in self.layers:
            x = 2 * layer(x)
        return x


class Reported(Straight):
    """Its blocks take more than what the one before returns."""

    def through(self, x):
        for number, layer in enumerate(self.layers):
            x = layer(x, scale=0.5 * number)
        return x


class After(Straight):
    def forward(self, x):
        return super().forward(x).exp()


class Trained(Straight):
    """Something else in training only."""

    def forward(self, x):
        x = self.through(self.embed(x))
        return self.head(x * 2 if self.training else x)


class Packed(Straight):
    def forward(self, x):
        return {"point": super().forward(x)}


class Handed(Straight):
    """One end leaves a note for the other, which lives on another stage."""

    def embed(self, x):
        self.note = x.mean()
        return super().embed(x)

    def head(self, x):
        return super().head(x) + self.note


class Counts(Straight):
    def forward(self, x):
        self.seen += len(x)
        return super().forward(x)


class Drawn(Straight):
    """Takes one draw twice where its ends draw anew."""

    def embed(self, x):
        return self.first(x) + torch.rand(4) - torch.rand(4)

    def forward(self, x):
        noise = torch.rand(4)
        return self.head(self.through(self.first(x) + noise - noise))


class Otherwise(Straight):
    """With another constant than its ends take; neither is a buffer."""

    low, high = torch.full((4,), 0.5), torch.full((4,), 2.0)

    def embed(self, x):
        return self.first(x) * self.low

    def forward(self, x):
        return self.head(self.through(self.first(x) * self.high))


class Rounded(Straight):
    """Loses digits before its blocks."""

    def forward(self, x):
        return self.head(self.through(self.embed(x).bfloat16().float()))


class Looks(Straight):
    """Its values decide which blocks it calls."""

    def through(self, x):
        return super().through(x) if float(x.mean()) > 100 else x


class LooksWithin(Straight):
    """Values decide inside an end, in the same way on a stage."""

    def embed(self, x):
        return super().embed(x) if float(x.mean()) > 100 else self.first(x)


def composition(model, hints=HINTS):
    blocks = [name for name, _ in find_blocks(model, hints)]
    return Composition(model, blocks, find_embed_and_head(model, blocks, hints), hints)


def check(model):
    return composition(model).require_same((), {"x": torch.ones(5, 2)})


@pytest.mark.parametrize("kind", [Straight, Rotated, LooksWithin])
@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_a_model_that_is_its_stages_passes_and_stays_as_it_was(kind, device):
    with torch.device(device):
        model = kind()
    before = {name: each.clone() for name, each in model.state_dict().items()}
    state = torch.get_rng_state()
    assert check(model) == ""
    assert torch.equal(torch.get_rng_state(), state)
    assert all(each.device.type == device for each in model.state_dict().values())
    assert device == "meta" or all(torch.equal(each, before[name]) for name, each in model.state_dict().items())


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Skips, "it calls layers.0, layers.2, and the blocks are layers.0, layers.1, layers.2"),
        (Twice, "it calls layers.0, layers.1, layers.2, layers.0"),
        (Backwards, "it calls layers.2, layers.1, layers.0"),
        (Past, "its outputs are not what head makes of what layers.2 returns"),
        (Between, "what enters layers.1 is not what layers.0 returns"),
        (Reported, "what enters layers.0 is not what embed returns"),
        (After, "its outputs are not what head makes of what layers.2 returns"),
        (Trained, "its outputs are not what head makes of what layers.2 returns"),
        (Packed, "it returns other outputs than head"),
        (Handed, "stages cannot compute what it does: AttributeError"),
        (Counts, "it leaves something else in seen"),
        (Drawn, "what enters layers.0 is not what embed returns"),
        (Otherwise, "what enters layers.0 is not what embed returns"),
        (Rounded, "what enters layers.0 is not what embed returns"),
        (Looks, "it calls none of them, and the blocks are layers.0"),
    ],
    ids=lambda each: each.__name__ if isinstance(each, type) else "",
)
def test_a_model_that_is_something_else_is_refused_by_what_differs(kind, said):
    with pytest.raises(ConfigError, match=r"forward of \w+ does something else") as raised:
        check(kind())
    assert said in str(raised.value)
    assert 'or use "fsdp"' in str(raised.value)


class Breaks(Straight):
    def forward(self, x):
        raise ValueError("not with these inputs")


def test_a_model_that_cannot_be_followed_is_not_judged():
    assert "ValueError: not with these inputs" in check(Breaks())


class SkipsTask:
    hints = HINTS

    def build_model(self, options):
        return Skips()

    def build_data(self, split, options):
        return [{"x": torch.zeros(2), "y": torch.zeros(())}]

    def loss(self, outputs, batch):
        return Loss(total=(outputs - batch["y"]).square().sum(), weight=len(outputs))


def followed(rank, group):
    """In a process that has run no backward pass: torch follows none in the fork of one that has."""
    return traces_of(SkipsTask(), {})


def test_a_planner_learns_of_it_before_anything_is_queued():
    (found,) = run_gang(1, followed)
    assert "forward of Skips does something else" in found["unstaged"]
    assert found["traces"], "all else is known of it"


def test_the_test_tasks_own_model_passes():
    assert composition(TASKS.Deep(layers=2, dropout=0.3)).require_same((), {"x": torch.randn(3, 4)}) == ""


SKIPPING = """
from model import Deep, DeepPoints


class Skipping(Deep):
    def forward(self, x):
        values = self.embed(x)
        for layer in self.layers[:-1]:
            values = layer(*values)
        return self.head(*values)


class SkippingPoints(DeepPoints):
    def build_model(self, options):
        return Skipping(**options)
"""


def test_every_rank_refuses_before_the_first_step(make_gang):
    gang = make_gang(CODE)
    (gang.code / "skipping.py").write_text(SKIPPING)
    plan = deep_plan(Mesh(pp=2), model=MODEL, program=ProgramSpec(task="skipping:SkippingPoints"))
    assert gang.run(plan) == [10, 10], gang.log()
    for rank in (0, 1):
        assert "forward of Skipping does something else: it calls layers.0, layers.1" in gang.log(rank)
        assert not gang.events(rank, "step")
