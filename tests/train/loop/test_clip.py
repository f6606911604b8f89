"""Norm, clipping and correction of gradients, against torch's own."""

import pytest
import torch

from gangline.train.loop.clip import clip, global_norm, scale


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


def test_scaling_multiplies_every_gradient(parameters):
    before = global_norm(parameters).item()
    scale(parameters, 0.25)
    assert global_norm(parameters).item() == pytest.approx(0.25 * before)


def test_no_gradient_has_norm_nought():
    assert global_norm([torch.zeros(2, requires_grad=True)]).item() == 0.0
