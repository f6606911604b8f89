"""The layer of experts against the slow version: token by token, expert by expert."""

import pytest
import torch
from torch.nn.functional import gelu

from gangline.train.moe import Experts, MoE, use_of_experts


def layer(width=8, experts=4, seed=0, **options):
    torch.manual_seed(seed)
    return MoE(width, experts, hidden=options.pop("hidden", 16), **options)


def slow(moe, x):
    """Each token through its experts, one matrix product each."""
    out = torch.zeros_like(x)
    for sample, token in ((s, t) for s in range(x.shape[0]) for t in range(x.shape[1])):
        row = x[sample, token]
        shares = torch.softmax(moe.router.weight @ row, -1)
        weights, chosen = shares.topk(moe.top_k)
        for weight, expert in zip(weights / weights.sum(), chosen.tolist(), strict=True):
            out[sample, token] += weight * (gelu(row @ moe.experts.up[expert]) @ moe.experts.down[expert])
    return out


def dense(moe, x):
    """Every expert computes every token; what was not chosen is not taken."""
    rows = x.flatten(0, 1)
    weights, chosen = moe._route(x).flatten(0, 1).topk(moe.top_k)
    weights = weights / weights.sum(-1, keepdim=True)
    every = torch.stack([gelu(rows @ up) @ down for up, down in zip(moe.experts.up, moe.experts.down, strict=True)], 1)
    taken = every[torch.arange(len(rows))[:, None], chosen]
    return (taken * weights[..., None]).sum(1).view_as(x)


@pytest.mark.parametrize("options", [{}, {"top_k": 1}, {"width": 6, "hidden": 10, "top_k": 3}])
def test_each_token_goes_through_the_experts_its_router_picks(options):
    moe = layer(**options)
    x = torch.randn(2, 5, moe.router.in_features)
    mixed, _ = moe(x)
    torch.testing.assert_close(mixed, slow(moe, x), atol=1e-6, rtol=1e-5)


@pytest.mark.proves("experts, dispatch without drops", oracle="every expert on every token")
def test_sorted_dispatch_has_the_bits_of_every_expert_on_every_token():
    moe = layer(width=16, experts=4)
    x = torch.randn(3, 7, 16)
    assert torch.equal(moe(x)[0], dense(moe, x))


def test_gradients_reach_router_and_experts_like_those_of_the_slow_version():
    moe, x = layer(), torch.randn(2, 5, 8)
    names = [name for name, _ in moe.named_parameters()]
    wanted = torch.autograd.grad(slow(moe, x).square().sum(), list(moe.parameters()))
    found = torch.autograd.grad(moe(x)[0].square().sum(), list(moe.parameters()))
    for name, ours, theirs in zip(names, found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}")


def test_a_full_expert_passes_over_what_comes_later_and_says_how_much():
    moe = layer(experts=2, top_k=1, capacity=1.0)
    with torch.no_grad():
        moe.router.weight.copy_(torch.tensor([[1.0] * 8, [-1.0] * 8]))
    x = torch.rand(1, 6, 8)  # all to expert 0, which takes 3 of 6
    mixed, _ = moe(x)
    assert torch.equal(mixed[0, 3:], torch.zeros(3, 8))
    torch.testing.assert_close(mixed[0, :3], slow(moe, x)[0, :3])
    assert (moe.load.tolist(), moe.num_dropped) == ([6, 0], 3)
    assert use_of_experts([moe]) == {"expert_imbalance": 2.0, "rows_dropped": 3}


def test_balance_counts_tokens_where_use_is_even_and_experts_times_as_many_where_one_has_all():
    moe = layer(experts=4, top_k=1)
    with torch.no_grad():
        moe.router.weight.zero_()
        moe.router.weight[0] = 1000.0
    one = torch.ones(2, 6, 8)
    assert moe(one)[1].tolist() == pytest.approx([24.0, 24.0])
    with torch.no_grad():
        moe.router.weight.copy_(torch.eye(4, 8) * 1000.0)
    even = torch.eye(4, 8).repeat(1, 2, 1)
    assert moe(even)[1].tolist() == pytest.approx([8.0])


def test_balance_adds_up_over_any_split_of_a_batch():
    moe, x = layer(), torch.randn(4, 6, 8)
    assert moe(x)[1].tolist() == pytest.approx([*moe(x[:1])[1].tolist(), *moe(x[1:])[1].tolist()])


def test_router_decides_in_float32_under_autocast():
    moe, x = layer(), torch.randn(2, 5, 8)
    with torch.autocast("cpu", torch.bfloat16):
        shares = moe._route(x)
    assert torch.equal(shares, moe._route(x))


def test_experts_without_rows_still_have_gradients():
    experts = Experts(8, 16, 3)
    experts(torch.randn(4, 8), torch.tensor([4, 0, 0])).square().sum().backward()
    assert torch.equal(experts.up.grad[1:], torch.zeros(2, 8, 16))
    assert experts.up.grad[0].abs().sum() > 0
