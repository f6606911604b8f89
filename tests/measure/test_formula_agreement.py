"""Where the two models of a plan meet: a decoder that was traced, and the same decoder by its shape."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention, silu

from gangline.measure.model_profile import trace
from gangline.measure.model_traces import sample_of
from gangline.planner.formula.memory import token_costs
from gangline.planner.formula.step_time import step_flops
from gangline.spec.transformer import Transformer
from gangline.train.task import Loss

HEADS, SEQUENCE, WORDS = 4, 64, 256


class Block(nn.Module):
    def __init__(self, model):
        super().__init__()
        width, feed = model.width, model.feed_width
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.wqkv, self.wo = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, feed, bias=False), nn.Linear(feed, width, bias=False)
        self.gate = nn.Linear(width, feed, bias=False) if model.gated else None

    def forward(self, x):
        seen = self.norms[0](x)
        query, key, value = self.wqkv(seen).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.wo(mixed.transpose(1, 2).flatten(2))
        seen = self.norms[1](x)
        wide = self.up(seen)
        return x + self.down(gelu(wide) if self.gate is None else silu(self.gate(seen)) * wide)


class Decoder(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.token = nn.Embedding(WORDS, model.width)
        self.layers = nn.ModuleList(Block(model) for _ in range(model.layers))
        self.norm, self.head = nn.RMSNorm(model.width), nn.Linear(model.width, WORDS, bias=False)

    def forward(self, tokens):
        x = self.token(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class Task:
    def __init__(self, model):
        self.model = model

    def build_model(self, options):
        return Decoder(self.model)

    def build_data(self, split, options):
        return [{"tokens": torch.zeros(SEQUENCE, dtype=torch.long), "next": torch.zeros(SEQUENCE, dtype=torch.long)}]

    def loss(self, outputs, batch):
        total = cross_entropy(outputs.flatten(0, 1), batch["next"].flatten(), reduction="sum")
        return Loss(total=total, weight=batch["next"].numel())


def both(*, gated, precision="fp32", layers=3):
    model = Transformer(
        layers=layers, width=128, heads=HEADS, feed_width=512, vocabulary=WORDS, sequence=SEQUENCE, gated=gated
    )
    task = Task(model)
    return model, trace(task, task.build_model({}), sample_of(task, {}), precision)


@pytest.mark.parametrize("gated", [False, True])
def test_work_and_what_a_block_hands_on_are_equal_but_for_the_scores_of_attention(gated):
    """The trace counts the masked half of the scores, and that fused attention computes them again backward."""
    model, traced = both(gated=gated)
    scores = 2 * model.sequence * model.layers * token_costs(model).attention_flops  # of all, not of the half below
    assert traced.flops_per_sample == step_flops(model, 1) - 1.5 * scores + 3.5 * scores
    assert traced.units[-1].boundary_bytes == 4 * model.sequence * model.width


def test_parameters_are_equal():
    model, traced = both(gated=True)
    assert sum(each.count * each.parameters for each in traced.units) == model.parameters


@pytest.mark.parametrize("gated", [False, True])
def test_activations_of_eager_operators_are_those_of_the_formula_within_15_percent(gated):
    """Of two blocks more, so that logits and what lies around the blocks are none of it."""
    (model, more), (_, less) = both(gated=gated, layers=5), both(gated=gated, layers=3)
    traced = (more.activation_bytes_per_sample - less.activation_bytes_per_sample) / 2
    formula = 2 * token_costs(model).kept("none") * model.sequence  # in 32 bits
    assert traced == pytest.approx(formula, rel=0.15)
