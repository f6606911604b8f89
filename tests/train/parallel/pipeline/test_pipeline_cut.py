"""Where a model is cut, what each stage keeps of it, and what cannot be cut, in words."""

from inspect import signature
from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.train.parallel.deep import TASKS
from torch import nn

from gangline.errors import ConfigError
from gangline.planner.layouts.pipeline import cut_into_stages
from gangline.train.parallel.model_parts import find_embed_and_head
from gangline.train.parallel.pipeline.packed_tensors import flatten, restore
from gangline.train.parallel.pipeline.stage_module import StageForward, merge, part_of, put
from gangline.train.task import ParallelHints

HINTS = ParallelHints(embed="embed", head="head")
costs = st.lists(st.integers(1, 9), min_size=1, max_size=8)


def dearest(costs, begins, embed, head):
    stops = [*begins[1:], len(costs)]
    sums = [sum(costs[start:stop]) for start, stop in zip(begins, stops, strict=True)]
    sums[0] += embed
    sums[-1] += head
    return max(sums)


@given(costs=costs, stages=st.integers(1, 8), embed=st.integers(0, 20), head=st.integers(0, 20))
def test_no_other_cut_has_a_cheaper_dearest_stage(costs, stages, embed, head):
    if stages > len(costs):
        with pytest.raises(ConfigError, match=rf"wants {stages} blocks or more, the model has {len(costs)}"):
            cut_into_stages(costs, stages)
        return
    found = cut_into_stages(costs, stages, embed=embed, head=head)
    assert [each for part in found for each in part] == list(range(len(costs)))
    assert all(len(part) for part in found)
    every = [(0, *begins) for begins in combinations(range(1, len(costs)), stages - 1)]
    best = min(dearest(costs, begins, embed, head) for begins in every)
    assert dearest(costs, [part.start for part in found], embed, head) == best


def test_a_heavy_head_gets_fewer_blocks():
    assert [len(each) for each in cut_into_stages([1.0] * 8, 4, head=2.0)] == [2, 2, 3, 1]


def test_ends_are_read_off_the_methods_and_those_they_call():
    model = TASKS.Deep(layers=2)
    ends = find_embed_and_head(model, ["layers.0", "layers.1"], HINTS)
    assert (ends.embed, ends.head, ends.either) == ({"first", "shift"}, {"last"}, set())


def test_an_end_may_be_a_module_or_lie_inside_one():
    body = {"embed": nn.Linear(2, 2), "blocks": nn.ModuleList([nn.Linear(2, 2)])}
    model = nn.ModuleDict({"body": nn.ModuleDict(body), "head": nn.Linear(2, 2)})
    ends = find_embed_and_head(model, ["body.blocks.0"], ParallelHints(embed="body.embed", head="head"))
    assert (ends.embed, ends.head) == ({"body.embed"}, {"head"})


def test_parts_keep_names_share_modules_and_come_back_together():
    model = TASKS.Deep(layers=3)
    names = dict(model.named_parameters())
    first = part_of(model, {"first", "shift", "layers.0"})
    rest = part_of(model, {"last", "layers.1", "layers.2"})
    assert {*dict(first.named_parameters())} == {n for n in names if n.startswith(("first", "shift", "layers.0"))}
    assert not {*dict(first.named_parameters())} & {*dict(rest.named_parameters())}
    whole = dict(merge([first, rest]).named_parameters())
    assert whole.keys() == names.keys()
    assert all(each is names[name] for name, each in whole.items())
    assert first.embed(torch.zeros(2, 4))[0].shape == (2, 8)
    put(model, "layers.1", None)
    assert "layers.1.norm.weight" not in model.state_dict()
    assert "layers.2.norm.weight" in model.state_dict()


def test_hooks_of_one_part_are_not_called_by_another():
    """FSDP2 has hooks on each stage: stages of one rank that shared them reduced each other's gradients halfway."""
    model, called = TASKS.Deep(layers=2), []
    model.register_forward_pre_hook(lambda *_: called.append("model"))
    first, rest = part_of(model, {"first", "shift", "layers.0"}), part_of(model, {"last", "layers.1"})
    first.register_forward_pre_hook(lambda *_: called.append("first"))
    first.forward = rest.forward = lambda: None
    rest()
    assert called == ["model"]
    first()
    assert called == ["model", "model", "first"]


class Tied(TASKS.Deep):
    def head(self, x, scale):
        return self.last(x) + self.first.weight.sum() * scale


class Orphan(TASKS.Deep):
    def __init__(self):
        super().__init__(layers=2)
        self.spare = nn.Linear(2, 2)


@pytest.mark.parametrize(
    ("model", "hints", "said"),
    [
        (TASKS.Deep(layers=2), ParallelHints(), r"hints.embed: a pipeline needs it, and Deep has none"),
        (TASKS.Deep(layers=2), ParallelHints(embed="embed"), r"hints.head: a pipeline needs it"),
        (
            TASKS.Deep(layers=2), ParallelHints(embed="embedding", head="head"),
            r"hints.embed = 'embedding': Deep has no such method or module; .* \['first', 'last', 'layers'\]",
        ),
        (Tied(layers=2), HINTS, r"first is used by both embed and head: .* give each its own, or use fsdp"),
        (Orphan(), HINTS, r"spare is used by neither embed nor head of Orphan"),
    ],
)  # fmt: skip
def test_a_model_whose_ends_are_not_clear_is_refused(model, hints, said):
    with pytest.raises(ConfigError, match=said):
        find_embed_and_head(model, ["layers.0", "layers.1"], hints)


def test_values_are_taken_apart_and_put_together():
    value = {"a": [torch.ones(2), None], "b": (torch.zeros(1), {"c": torch.ones(3)})}
    structure, tensors = flatten(value)
    assert [len(each) for each in tensors] == [2, 1, 3]
    again = restore(structure, tensors)
    assert again["a"][1] is None
    assert type(again["b"]) is tuple
    assert again["b"][1]["c"] is value["b"][1]["c"]
    with pytest.raises(ConfigError, match="found set"):
        flatten({"a": {1}})


def test_weights_under_two_names_are_refused():
    model = nn.Module()
    model.embed, model.layers, model.head = (
        nn.Embedding(4, 2),
        nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)]),
        nn.Linear(2, 4, bias=False),
    )
    model.head.weight = model.embed.weight
    with pytest.raises(ConfigError, match=r"head\.weight of Module is embed\.weight under another name"):
        find_embed_and_head(model, ["layers.0", "layers.1"], ParallelHints(embed="embed", head="head"))


class Turned(nn.Module):
    def forward(self, x):
        return (x.T * 2).T


@pytest.mark.parametrize("wants_gradient", [True, False])
def test_what_leaves_a_stage_lies_in_order_and_is_not_a_view(wants_gradient):
    stage = StageForward(
        [Turned()], embed=None, head=None, signature=signature(Turned.forward), precision="fp32",
        device=torch.device("cpu"), sharded=False,
    )  # fmt: skip
    left = stage(torch.ones(3, 2, requires_grad=wants_gradient))
    assert left.is_contiguous()
    assert not (wants_gradient and left._is_view())
