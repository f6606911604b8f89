"""Which parameters are matrices to a rule, by the kind of their module, their name and the routes given."""

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from gangline.errors import ConfigError
from gangline.optim.plan.matrix import FragmentSplit
from gangline.optim.plan.routing import NamedParameter, Route, explain_routing, route_parameters
from gangline.optim.routing import named_parameters, partition_params


class Block(nn.Module):
    """A layer with fused parameters, experts and heads that are no output head."""

    def __init__(self):
        super().__init__()
        self.input_norm = nn.LayerNorm(8)
        self.multihead = nn.Linear(8, 16, bias=False)
        self.fc1 = nn.Linear(8, 12)
        self.router = nn.Linear(8, 3, bias=False)
        self.experts = nn.Parameter(torch.zeros(3, 4, 8))
        self.plane = nn.LayerNorm((4, 8))


class Model(nn.Module):
    """Two layers between an embedding and a head of its own."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(10, 8)
        self.layers = nn.ModuleList(Block() for _ in range(2))
        self.lm_head = nn.Linear(8, 10, bias=False)


STACK = Route(match="layers.*.experts", split="stack")


def kinds(model, **options):
    return {name: group["kind"] for group in partition_params(model, **options) for name in group["names"]}


def test_matrices_are_what_is_left_over():
    found = kinds(Model(), routes=[STACK])
    assert [name for name, kind in found.items() if kind == "matrix"] == [
        f"layers.{layer}.{each}" for layer in (0, 1) for each in ("experts", "multihead.weight", "fc1.weight")
    ]
    assert len(found) == len(list(Model().parameters()))


def test_groups_are_those_of_a_torch_optimizer():
    model = Model()
    matrix, elementwise = partition_params(model, routes=[STACK, Route(match="*.fc1.weight", split="gate_up")])
    named = dict(model.named_parameters())
    for group in (matrix, elementwise):
        assert all(named[name] is each for name, each in zip(group["names"], group["params"], strict=True))
    assert matrix["splits"]["layers.0.fc1.weight"] == FragmentSplit(kind="gate_up")
    assert matrix["splits"]["layers.1.multihead.weight"] == FragmentSplit()
    assert {"layers.0.plane.weight", "tokens.weight", "layers.0.fc1.bias"} <= set(elementwise["names"])


def test_names_are_those_of_the_bare_model():
    bare = [each.name for each, _ in named_parameters(Model())]
    wrapped = Model()
    wrapped.layers[0] = checkpoint_wrapper(wrapped.layers[0])
    wrapped.lm_head = torch.compile(wrapped.lm_head)
    assert "layers.0._checkpoint_wrapped_module.fc1.bias" in dict(wrapped.named_parameters())
    assert [each.name for each, _ in named_parameters(wrapped)] == bare


def test_a_matrix_that_is_also_an_embedding_is_none_whatever_name_comes_first():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.output = nn.Linear(8, 10, bias=False)
            self.inner = nn.Linear(8, 8, bias=False)
            self.tokens = nn.Embedding(10, 8)
            self.tokens.weight = self.output.weight

    assert kinds(Tied()) == {"inner.weight": "matrix", "output.weight": "elementwise"}


def test_frozen_parameters_are_in_no_group():
    model = Model()
    model.layers[0].requires_grad_(False)
    assert not any(
        name.startswith("layers.0") for name in kinds(model, routes=[Route(match="layers.1.experts", split="stack")])
    )


def test_a_route_goes_before_names_and_kinds():
    routes = [STACK, Route(match="lm_head.weight"), Route(match="*.fc1.weight", kind="elementwise")]
    found = kinds(Model(), routes=routes)
    assert (found["lm_head.weight"], found["layers.0.fc1.weight"]) == ("matrix", "elementwise")


def test_a_matrix_of_one_row_is_a_matrix():
    assert kinds(nn.Sequential(nn.Linear(8, 1, bias=False))) == {"0.weight": "matrix"}


@pytest.mark.parametrize(
    ("routes", "words"),
    [
        ([], r"experts has shape \(3, 4, 8\).*split = 'stack'.*kind = 'elementwise'"),
        ([STACK, Route(match="decoder.*")], r"'decoder.\*' matches no parameter"),
        ([STACK, Route(match="*.fc1.weight"), Route(match="layers.0.fc1.*")], "both match layers.0.fc1.weight"),
        ([STACK, Route(match="*.fc1.bias")], r"fc1.bias: split 'none' does not fit shape \(12,\)"),
        ([STACK, Route(match="*.multihead.weight", split="qkv", heads=3, kv_heads=1, head_dim=4)], "found 16"),
    ],
)  # fmt: skip
def test_what_has_no_clear_route_is_named(routes, words):
    with pytest.raises(ConfigError, match=words):
        partition_params(Model(), routes=routes)


def test_a_convolution_is_elementwise_where_a_route_says_so():
    model = nn.Sequential(nn.Conv2d(3, 4, 2, bias=False), nn.Linear(4, 5, bias=False))
    with pytest.raises(ConfigError, match=r"0.weight has shape \(4, 3, 2, 2\)"):
        kinds(model)
    with pytest.raises(ConfigError, match="split 'none' does not fit"):
        kinds(model, routes=[Route(match="0.weight")])
    assert kinds(model, routes=[Route(match="0.weight", kind="elementwise")])["0.weight"] == "elementwise"


def test_a_rule_without_matrix_is_refused():
    with pytest.raises(ConfigError, match="no matrix among 1 parameters"):
        partition_params(nn.Sequential(nn.Embedding(3, 4)))


def test_the_table_of_a_routing():
    parameters = [each for each, _ in named_parameters(Model())]
    text = explain_routing(route_parameters(parameters, routes=[STACK]))
    lines = [line.split("  ") for line in text.splitlines()]
    rows = {row[0]: [cell.strip() for cell in row[1:] if cell.strip()] for row in lines}
    assert rows["tokens.weight"] == ["10 x 8", "elementwise", "of a module of kind embedding"]
    assert rows["2 x layers.*.experts"] == ["3 x 4 x 8", "matrix as stack", "route layers.*.experts"]
    assert rows["2 x layers.*.fc1.weight"] == ["12 x 8", "matrix", "a matrix"]
    assert rows["lm_head.weight"] == ["10 x 8", "elementwise", "exclude head"]
    assert rows["2 x layers.*.fc1.bias"] == ["12", "elementwise", "no matrix"]


def test_names_alone_decide_without_modules():
    shapes = {"embed_tokens.weight": (9, 4), "layers.0.multihead.weight": (4, 4), "final_norm": (4,)}
    found = route_parameters([NamedParameter(name=name, shape=shape) for name, shape in shapes.items()])
    assert [each.kind for each in found] == ["elementwise", "matrix", "elementwise"]


def test_a_stage_may_lack_what_a_route_is_for():
    part = [NamedParameter(name="layers.1.fc.weight", shape=(4, 4))]
    route = Route(match="layers.0.*", split="gate_up")
    with pytest.raises(ConfigError, match="matches no parameter"):
        route_parameters(part, routes=[route])
    assert route_parameters(part, routes=[route], is_part=True)[0].kind == "matrix"


def test_a_route_that_matches_nothing_names_what_it_may_be_meant_for():
    names = ["token.weight", *(f"layers.{at}.norm.weight" for at in range(9)), "layers.0.wqkv.weight"]
    parameters = [NamedParameter(name=name, shape=(4, 4)) for name in names]
    with pytest.raises(
        ConfigError, match=r"'layers.\*.qkv.weight' matches no parameter; did you mean layers.0.wqkv.weight"
    ):
        route_parameters(parameters, routes=[Route(match="layers.*.qkv.weight")])
