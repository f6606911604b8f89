"""The table of a line against torch's classes; mistakes by name."""

import pytest
import torch
from torch import nn

from gangline.errors import ConfigError
from gangline.spec.config.optimizer import moment_bytes
from gangline.train.runtime.optimizer import elementwise_optimizer


def make_optimizer(model, table):
    return elementwise_optimizer([{"params": [each for each in model.parameters() if each.requires_grad]}], table)


def test_empty_table_is_adamw():
    optimizer = make_optimizer(nn.Linear(2, 2), {})
    assert type(optimizer) is torch.optim.AdamW
    assert optimizer.param_groups[0]["lr"] == 1e-3


def test_options_reach_torch():
    table = {"elementwise": {"rule": "adamw", "lr": 0.1, "betas": [0.8, 0.9], "weight_decay": 0}}
    group = make_optimizer(nn.Linear(2, 2), table).param_groups[0]
    assert (group["lr"], group["betas"], group["weight_decay"]) == (0.1, (0.8, 0.9), 0.0)


def test_sgd_has_momentum():
    optimizer = make_optimizer(nn.Linear(2, 2), {"elementwise": {"rule": "sgd", "momentum": 0.9, "nesterov": True}})
    assert type(optimizer) is torch.optim.SGD
    assert optimizer.param_groups[0]["nesterov"] is True


@pytest.mark.parametrize(
    ("table", "size"),
    [({}, 8), ({"elementwise": {"rule": "sgd"}}, 0), ({"elementwise": {"rule": "sgd", "momentum": 0.9}}, 4)],
)
def test_the_planner_counts_the_moments_that_torch_keeps(table, size):
    model = nn.Linear(64, 64)
    optimizer = make_optimizer(model, table)
    model(torch.ones(1, 64)).sum().backward()
    optimizer.step()
    states = [each for state in optimizer.state.values() for each in state.values() if torch.is_tensor(each)]
    held = sum(each.nbytes for each in states if each.ndim)  # counts of steps have no dimension
    assert held == size * sum(each.numel() for each in model.parameters())
    assert moment_bytes(table) == size


def test_a_table_of_another_optimizer_counts_as_adamw():
    assert moment_bytes({"elementwise": {"rule": "adan"}}) == 8


def test_frozen_parameters_are_left_out():
    model = nn.Linear(2, 2)
    model.bias.requires_grad_(False)
    assert [len(group["params"]) for group in make_optimizer(model, {}).param_groups] == [1]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"matrix": {}}, r"optimizer.matrix: wanted elementwise, or the options of a rule, found no rule"),
        ({"momentum": 0.9}, r'optimizer.momentum: .* found no rule; write rule = "muon" with it'),
        ({"rule": "muom"}, r"optimizer.rule: wanted one of muon.*'muom'; did you mean \"muon\""),
        ({"rule": "muon", "momentun": 1}, r"momentun: wanted an option of muon, found an unknown one; did you mean mo"),
        (
            {"rule": "muon", "kernel": "fast"},
            r"optimizer.kernel: wanted one of standard, symmetric, gram, found 'fast'",
        ),
        ({"rule": "muon", "ns_coefficients": [1]}, r"optimizer.ns_coefficients: wanted 3 numbers, found a list of 1"),
        ({"rule": "muon", "batch": 1.5}, r"optimizer.batch: wanted a whole number, 1 or more, found 1.5"),
        ({"rule": "muon", "exclude": "head"}, r"optimizer.exclude: wanted a list of parts of names, found 'head'"),
        ({"rule": "muon", "route": [{"split": "qkv"}]}, r"optimizer.route\[0\].match: wanted a pattern of names"),
        (
            {"rule": "muon", "route": [{"match": "*", "spilt": 1}]},
            r"route\[0\].spilt: wanted one of match, kind, split",
        ),
        ({"elementwise": {"rule": "adan"}}, r"wanted one of adamw, sgd, found 'adan'; did you mean \"adamw\"\?"),
        ({"elementwise": {"betta": 3}}, r"betta: wanted an option of adamw, found an unknown one; did you mean betas"),
        ({"elementwise": {"momentum": 1}}, r"momentum: wanted an option of adamw, .* there are lr, betas, eps,"),
        ({"elementwise": {"lr": "fast"}}, r"optimizer.elementwise.lr: wanted a number, 0 or more, found 'fast'"),
        ({"elementwise": {"betas": 0.9}}, r"betas: wanted 2 numbers, 0 or more, found 0.9"),
        ({"elementwise": {"betas": ["a", 0.9]}}, r"betas: wanted 2 numbers"),
        ({"elementwise": {"rule": "sgd", "nesterov": 1}}, r"nesterov: wanted true or false, found 1"),
        ({"elementwise": 3}, r"optimizer.elementwise: wanted a table, found 3"),
    ],
)
def test_mistake_is_named_with_what_works(table, message):
    with pytest.raises(ConfigError, match=message):
        make_optimizer(nn.Linear(2, 2), table)
