"""Norm, clipping and correction of gradients, against torch's own."""

import math

import pytest
import torch
from tests.train.parallel.peers import made_up
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from gangline.train.loop.gradient_norm import align_gradients, clip, global_norm, scale


@pytest.fixture
def parameters():
    torch.manual_seed(1)
    made = [torch.zeros(3, 4, requires_grad=True), torch.zeros(5, requires_grad=True)]
    for each in made:
        each.grad = torch.randn_like(each)
    return [*made, torch.zeros(2, requires_grad=True)]


def test_norm_is_that_of_all_gradients_as_one_vector(parameters):
    flat = torch.cat([each.grad.flatten() for each in parameters if each.grad is not None])
    assert global_norm(parameters).item() == pytest.approx(flat.norm().item())


def test_clipping_meets_the_bound_and_leaves_small_gradients_alone(parameters):
    before = [each.grad.clone() for each in parameters[:2]]
    clip(parameters, global_norm(parameters), max_norm=1e3)
    assert all(torch.equal(each.grad, old) for each, old in zip(parameters, before, strict=False))
    clip(parameters, global_norm(parameters), max_norm=0.5)
    assert global_norm(parameters).item() == pytest.approx(0.5, rel=1e-4)


def test_gradients_that_are_clearly_small_enough_are_not_written_to(parameters):
    written = parameters[0].grad._version
    clip(parameters, global_norm(parameters), max_norm=1e3)
    assert parameters[0].grad._version == written


@pytest.mark.parametrize("max_norm", [1e-7, 2e-6])
@pytest.mark.parametrize("ratio", [0.0, 0.5, 0.9989, 0.9991, 0.9999999, 1.0, 1.0000001, 1.1, 30.0, math.inf, math.nan])
@pytest.mark.parametrize("scale_of", [1.0, 1e6])
def test_clipping_equals_that_of_torch_bit_for_bit(parameters, max_norm, ratio, scale_of):
    max_norm *= scale_of
    norm = torch.tensor(ratio * max_norm)
    wanted = [torch.nn.Parameter(torch.zeros_like(each)) for each in parameters[:2]]
    for each, own in zip(wanted, parameters, strict=False):
        each.grad = own.grad.clone()
    torch.nn.utils.clip_grads_with_norm_(wanted, max_norm, norm)
    clip(parameters, norm, max_norm=max_norm)
    for each, own in zip(wanted, parameters, strict=False):
        torch.testing.assert_close(own.grad, each.grad, rtol=0, atol=0, equal_nan=True)


def test_scaling_multiplies_every_gradient(parameters):
    before = global_norm(parameters).item()
    scale(parameters, 0.25)
    assert global_norm(parameters).item() == pytest.approx(0.25 * before)


def test_no_gradient_has_norm_nought():
    assert global_norm([torch.zeros(2, requires_grad=True)]).item() == 0.0


def test_pieces_and_copies_of_any_mesh_count_once():
    """On the first of four ranks that do not exist, so that sums over them add nothing."""
    with made_up(dp=2, tp=2) as mesh:
        plain, copied, cut = (torch.nn.Parameter(torch.zeros(4, 4)) for _ in range(3))
        copied = torch.nn.Parameter(DTensor.from_local(copied.data, mesh["tp"], [Replicate()]))
        cut = torch.nn.Parameter(DTensor.from_local(cut.data, mesh, [Shard(0), Shard(1)]))
        plain.grad = torch.full((4, 4), 1.0)
        copied.grad = DTensor.from_local(torch.full((4, 4), 2.0), mesh["tp"], [Replicate()])
        cut.grad = DTensor.from_local(torch.full((4, 4), 3.0), mesh, [Shard(0), Shard(1)])
        parameters = [plain, copied, cut]
        assert global_norm(parameters).item() == pytest.approx((16 * (1 + 4 + 9)) ** 0.5)
        clip(parameters, global_norm(parameters), max_norm=1.0)
        assert global_norm(parameters).item() == pytest.approx(1.0, rel=1e-5)


def test_gradients_settle_as_their_parameters_lie():
    with made_up(tp=2) as mesh:
        whole = torch.nn.Parameter(DTensor.from_local(torch.zeros(4), mesh, [Replicate()]))
        whole.grad = DTensor.from_local(torch.ones(4), mesh, [Partial()])
        align_gradients([whole, torch.nn.Parameter(torch.zeros(2))])
        assert whole.grad.placements == (Replicate(),)
