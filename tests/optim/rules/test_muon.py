"""Muon against torch's own, and against the formulas in float64."""

import pytest
import torch
from tests.optim.rules.one_matrix import SMALL_SHAPES, gradients, relative, state_of, step
from tests.oracles.matrix_rules import muon

from gangline.errors import ConfigError
from gangline.optim.rules.muon import Muon

ADJUST = [None, "original", "match_rms_adamw", "spectral_unclamped"]


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("adjust", ADJUST)
@pytest.mark.parametrize("shape", SMALL_SHAPES)
def test_steps_are_those_of_torch(shape, adjust, nesterov):
    """torch rounds to bfloat16 before it takes the norm: parameters agree to that, momentum to the bit."""
    options = {"lr": 0.02, "weight_decay": 0.3, "nesterov": nesterov, "adjust_lr_fn": adjust}
    ours, theirs = Muon(**options), torch.nn.Parameter(gradients(shape, 1, seed=1)[0])
    parameter, state = theirs.detach().clone(), state_of(ours, shape)
    start, optimizer = parameter.clone(), torch.optim.Muon([theirs], **options)
    for gradient in gradients(shape, 4):
        theirs.grad = gradient.clone()
        optimizer.step()
        step(ours, parameter, gradient, state)
        assert torch.equal(state["momentum"], optimizer.state[theirs]["momentum_buffer"])
    assert relative(parameter - start, (theirs - start).detach()) < 0.03


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("shape", SMALL_SHAPES)
def test_steps_are_the_formulas(shape, nesterov):
    options = {"lr": 0.02, "weight_decay": 0.3, "nesterov": nesterov}
    rule, (parameter,) = Muon(**options, dtype="float32"), gradients(shape, 1, seed=1)
    wanted = muon(
        parameter.double().numpy(), [each.double().numpy() for each in gradients(shape, 5)], **options,
        factor=max(1, shape[0] / shape[1]) ** 0.5,
    )  # fmt: skip
    state = state_of(rule, shape)
    for gradient in gradients(shape, 5):
        step(rule, parameter, gradient, state)
    assert relative(parameter, wanted) < 2e-6


def test_options_are_those_of_torch():
    theirs = torch.optim.Muon([torch.zeros(2, 2)]).param_groups[0]
    ours = Muon().defaults
    assert ours.keys() == theirs.keys() - {"params"}
    assert {name for name in ours if ours[name] != theirs[name]} == {"eps"}


def test_a_norm_below_eps_counts_as_eps():
    (matrix,) = gradients((6, 8), 1)
    norms = [
        float(step(rule, torch.zeros(6, 8), scale * matrix, state_of(rule, (6, 8))).norm())
        for scale in (1e-3, 1e-12, 1e-15)
        for rule in (Muon(dtype="float32"), Muon(dtype="float32", eps=1e-7))
    ]
    assert norms[:5:2] == pytest.approx([norms[0]] * 3, rel=1e-5)
    assert norms[1] == pytest.approx(norms[0], rel=1e-5)
    assert norms[3] < norms[0] / 10
    assert norms[5] == pytest.approx(norms[3] / 1000, rel=1e-2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_momentum_is_float32_whatever_the_parameter_is(dtype):
    rule, shape = Muon(dtype="float32"), (5, 8)
    (parameter,) = gradients(shape, 1, seed=1, dtype=dtype)
    state, exact = state_of(rule, shape), torch.zeros(shape)
    for gradient in gradients(shape, 3, dtype=dtype):
        step(rule, parameter, gradient, state)
        exact.lerp_(gradient.float(), 1 - 0.95)
    assert (parameter.dtype, state["momentum"].dtype) == (dtype, torch.float32)
    assert torch.equal(state["momentum"], exact)


@pytest.mark.parametrize(
    "bad",
    [
        {"lr": -1.0}, {"momentum": -0.1}, {"eps": -1e-9}, {"ns_steps": 0}, {"ns_steps": 100}, {"kernel": "fast"},
        {"dtype": "float16"}, {"adjust_lr_fn": "none"}, {"ns_coefficients": (1.0, 2.0)},
    ],
)  # fmt: skip
def test_options_out_of_range_are_named(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        Muon(**bad)
