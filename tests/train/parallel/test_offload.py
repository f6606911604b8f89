"""Tensors that wait on the host: bits stay what they are, parameters are not moved."""

import pytest
import torch
from tests.train.parallel.memory_plans import plan_of, sequences
from tests.train.trained import trained, weight_gap
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from gangline.train.parallel.memory_savings import is_activation, keep_on_host, recompute, shard_offload

CPU = torch.device("cpu")


def proof(strategy, offload):
    proves = pytest.mark.proves(f"offload {offload}", oracle="all of it on the device", gate="same bits")
    return pytest.param(strategy, offload, marks=proves)


@pytest.mark.parametrize(("strategy", "offload"), [proof("fsdp", "cpu"), proof("ddp", "activations")])
def test_where_tensors_wait_changes_no_bit(make_gang, reached, strategy, offload):
    wanted, losses = trained(make_gang(), plan_of(strategy, steps=3))
    found, own = trained(make_gang(), plan_of(strategy, steps=3, memory={"offload": offload}))
    assert own == losses
    assert weight_gap(found, wanted) == 0
    reached(0.0)


def test_pinned_memory_is_asked_for_with_an_accelerator_alone():
    """Asking for it without one fails in the first backward pass."""
    assert shard_offload(to_host=True, device=CPU).pin_memory is False
    assert shard_offload(to_host=True, device=torch.device("cuda")).pin_memory is True


@pytest.mark.parametrize("policy", ["none", "full"])
def test_parameters_and_their_views_are_no_activations(policy):
    block, moved = sequences().Block(8, 0.0), []
    recompute(block, 0, policy)
    keep_on_host(block)
    given = torch.randn(2, 5, 8, requires_grad=True)
    seen = lambda saved: (moved.append(saved) if is_activation(saved) else None, saved)[1]  # noqa: E731
    inner = block.forward.__wrapped__
    with saved_tensors_hooks(seen, lambda kept: kept):
        inner(given).sum().backward()
    own = {each.untyped_storage().data_ptr() for each in block.parameters()}
    assert moved
    assert not own & {each.untyped_storage().data_ptr() for each in moved}
    if policy == "full":
        assert any(torch.equal(each, given) for each in moved)


def test_gradients_with_and_without_are_equal():
    blocks = []
    for wait in (False, True):
        torch.manual_seed(1)
        block = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4))
        if wait:
            keep_on_host(block)
        block(torch.ones(3, 4)).square().sum().backward()
        blocks.append(block)
    ours, theirs = ([each.grad for each in block.parameters()] for block in blocks)
    assert all(map(torch.equal, ours, theirs))
