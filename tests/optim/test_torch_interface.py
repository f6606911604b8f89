"""What torch's own loops do with an optimizer: state dicts, schedulers, groups; and import from `torch.optim.Muon`."""

import copy
import io

import pytest
import torch
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

from gangline.errors import ConfigError
from gangline.optim.matrix_optimizer import MatrixOptimizer
from gangline.optim.rules.muon import Muon
from gangline.optim.rules.shampoo import Shampoo
from gangline.optim.rules.soap import Soap
from gangline.optim.torch_muon import load_torch_muon

RULES = [Muon(lr=0.02), Shampoo(), Soap()]
MATRICES = ["0.weight", "1.weight"]


def layers(dtype=torch.float32):
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.Linear(4, 8)).to(dtype)


def optimizer_of(model, rule):
    named = dict(model.named_parameters())
    others = [name for name in named if name not in MATRICES]
    return MatrixOptimizer(
        [
            {"params": [named[name] for name in MATRICES], "names": MATRICES, "kind": "matrix"},
            {"params": [named[name] for name in others], "names": others, "kind": "elementwise"},
        ],
        rule=rule,
    )


def train(model, optimizer, *, steps, seed):
    source = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        for each in model.parameters():
            each.grad = torch.randn(each.shape, generator=source).to(each.dtype)
        optimizer.step()


def assert_same_next_steps(first, second):
    for model, optimizer in (first, second):
        train(model, optimizer, steps=3, seed=7)
    for ours, theirs in zip(first[0].parameters(), second[0].parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rule", RULES, ids=lambda each: type(each).__name__)
def test_state_dict_continues_with_the_same_bits(rule, dtype):
    model = layers(dtype)
    optimizer = optimizer_of(model, rule)
    train(model, optimizer, steps=3, seed=3)
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    other = copy.deepcopy(model)
    resumed = optimizer_of(other, rule)
    resumed.load_state_dict(torch.load(file))
    kinds = [{name: each.dtype for name, each in optimizer.state[it].items()} for it in model.parameters()]
    assert kinds == [{name: each.dtype for name, each in resumed.state[it].items()} for it in other.parameters()]
    assert_same_next_steps((model, optimizer), (other, resumed))


def test_loading_does_not_tie_two_optimizers():
    model = layers()
    optimizer = optimizer_of(model, RULES[0])
    train(model, optimizer, steps=1, seed=3)
    state = optimizer.state[model[0].weight]["momentum"]
    resumed = optimizer_of(copy.deepcopy(model), RULES[0])
    resumed.load_state_dict(optimizer.state_dict())
    before = state.clone()
    resumed.state[resumed.param_groups[0]["params"][0]]["momentum"].zero_()
    assert torch.equal(state, before)


def test_state_of_another_rule_is_refused_and_nothing_changed():
    model = layers()
    optimizer = optimizer_of(model, RULES[0])
    train(model, optimizer, steps=1, seed=3)
    before = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(ConfigError, match=r"0\.weight .*rule"):
        optimizer.load_state_dict(optimizer_of(layers(), Soap()).state_dict())
    with pytest.raises(ConfigError, match="groups"):
        optimizer.load_state_dict(torch.optim.Muon([model[0].weight]).state_dict())
    after = optimizer.state_dict()
    assert after["param_groups"] == before["param_groups"]
    assert all(
        torch.equal(each, before["state"][at][name])
        for at, state in after["state"].items()
        for name, each in state.items()
    )


@pytest.mark.parametrize("rule", RULES, ids=lambda each: type(each).__name__)
def test_distributed_state_dict_by_name_continues_with_the_same_bits(rule):
    model = layers()
    optimizer = optimizer_of(model, rule)
    train(model, optimizer, steps=3, seed=3)
    found = copy.deepcopy(get_optimizer_state_dict(model, optimizer))
    assert set(MATRICES) <= found["state"].keys()
    other = copy.deepcopy(model)
    resumed = optimizer_of(other, rule)
    resumed.create_state()
    set_optimizer_state_dict(other, resumed, found)
    assert_same_next_steps((model, optimizer), (other, resumed))


def test_scheduler_of_torch_sets_the_rate_of_both_kinds():
    model = layers()
    optimizer = optimizer_of(model, Muon(lr=0.02, weight_decay=0.0))
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: float(step == 0))
    train(model, optimizer, steps=1, seed=3)
    scheduler.step()
    before = [each.clone() for each in model.parameters()]
    train(model, optimizer, steps=1, seed=4)
    assert all(map(torch.equal, before, model.parameters()))


def test_group_added_later_is_refused():
    optimizer = optimizer_of(layers(), RULES[0])
    with pytest.raises(ConfigError, match="create a new one"):
        optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(2, 2))], "kind": "matrix"})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_momentum_of_torch_muon_gives_its_next_step(dtype):
    """Both compute products in bfloat16, but torch rounds before it takes the norm: 0.035 apart here, 0.06 allowed.

    A step without the momentum is far away.
    """
    model = layers(dtype)
    theirs = torch.optim.Muon([model[0].weight, model[1].weight], lr=0.02, weight_decay=0.0)
    train(model, theirs, steps=3, seed=3)
    other, without = copy.deepcopy(model), copy.deepcopy(model)
    optimizer = optimizer_of(other, Muon(lr=0.02, weight_decay=0.0))
    load_torch_muon(optimizer, theirs.state_dict(), MATRICES)
    for at in (0, 1):
        momentum = optimizer.state[other[at].weight]["momentum"]
        assert momentum.dtype == torch.float32
        assert torch.equal(momentum, theirs.state[model[at].weight]["momentum_buffer"].float())
    start = [model[at].weight.detach().float().clone() for at in (0, 1)]
    train(model, theirs, steps=1, seed=5)
    train(other, optimizer, steps=1, seed=5)
    train(without, optimizer_of(without, Muon(lr=0.02, weight_decay=0.0)), steps=1, seed=5)
    for at in (0, 1):
        wanted, found, fresh = (each[at].weight.detach().float() - start[at] for each in (model, other, without))
        assert torch.linalg.norm(found - wanted) < 0.06 * torch.linalg.norm(wanted)
        assert torch.linalg.norm(fresh - wanted) > 0.2 * torch.linalg.norm(wanted)


def test_torch_muon_state_that_does_not_fit_is_refused():
    model = layers()
    theirs = torch.optim.Muon([model[0].weight, model[1].weight])
    with pytest.raises(ConfigError, match="2 parameters, found 1"):
        load_torch_muon(optimizer_of(model, RULES[0]), theirs.state_dict(), MATRICES[:1])
    with pytest.raises(ConfigError, match=r"0\.weight keeps momentum"):
        load_torch_muon(optimizer_of(model, RULES[0]), theirs.state_dict(), MATRICES)


def test_scaled_buffers_of_torch_muon_are_named():
    model = layers(torch.bfloat16)
    theirs = torch.optim.Muon([model[0].weight, model[1].weight], nesterov=False)
    train(model, theirs, steps=1, seed=3)
    with pytest.warns(UserWarning, match="without nesterov"):
        load_torch_muon(optimizer_of(model, RULES[0]), theirs.state_dict(), MATRICES)


def test_momentum_of_torch_muon_is_not_taken_by_another_rule():
    model = layers()
    theirs = torch.optim.Muon([model[0].weight, model[1].weight])
    train(model, theirs, steps=1, seed=3)
    with pytest.raises(ConfigError, match="rule soap, which keeps no momentum"):
        load_torch_muon(optimizer_of(model, Soap()), theirs.state_dict(), MATRICES)
