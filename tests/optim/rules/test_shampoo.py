"""Shampoo against sums over all gradients in float64."""

from itertools import pairwise

import pytest
import torch
from tests.optim.rules.one_matrix import SMALL_SHAPES, gradients, relative, state_of, step
from tests.oracles.matrix_rules import shampoo

from gangline.errors import ConfigError, TrainingError
from gangline.optim.rules.shampoo import Shampoo


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("shape", SMALL_SHAPES)
def test_updates_are_the_formulas(shape, every):
    given = gradients(shape, 8)
    wanted = shampoo([each.double().numpy() for each in given], refresh_every=every)
    for dtype, error in ((torch.float64, 1e-6), (torch.float32, 2e-3)):
        rule = Shampoo(refresh_every=every)
        state = state_of(rule, shape, dtype)
        for at, gradient in enumerate(given):
            found = step(rule, torch.zeros(shape), gradient, state, refresh=at % every == 0)
            assert found.dtype == torch.float32
            assert relative(found, wanted[at]) < error


def test_steps_are_those_of_other_code():
    """Diagonal that facebookresearch/optimizers (f606606) gives after these gradients: `lr=1, betas=(0.9, 0.999),
    epsilon=1e-12, target_parameter_dimensionality=2`. Over 24 gradients, square matrices differed by 2e-5 at most, with
    roots refreshed in each step or every third one; wide ones by 4e-4 until their longer factor had its full rank."""
    rule, parameter = Shampoo(lr=1.0, weight_decay=0.0, eps=1e-12, refresh_every=1), torch.zeros(5, 5)
    state = state_of(rule, (5, 5))
    for gradient in gradients((5, 5), 12, seed=3):
        step(rule, parameter, gradient, state, refresh=True)
    assert parameter.diag().tolist() == pytest.approx([1.1366, -1.21, 0.7049, -2.5914, -1.9463], abs=2e-3)


def test_roots_change_where_they_are_due_and_in_the_first_step():
    rule, shape = Shampoo(), (6, 9)
    state, roots = state_of(rule, shape), []
    for at, gradient in enumerate(gradients(shape, 5)):
        step(rule, torch.zeros(shape), gradient, state, refresh=at == 3)
        roots.append(state["root_left"].clone())
    assert [torch.equal(*pair) for pair in pairwise(roots)] == [True, True, False, True]
    assert roots[0].any()
    assert state["step"].tolist() == [[5]]


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_updates_do_not_depend_on_the_scale_of_gradients(scale):
    rule, shape = Shampoo(), (6, 9)
    (gradient,) = gradients(shape, 1)
    found, wanted = (step(rule, torch.zeros(shape), each * gradient, state_of(rule, shape)) for each in (scale, 1))
    assert relative(found, wanted) < 1e-5


def test_a_zero_gradient_gives_a_zero_update():
    rule = Shampoo()
    assert not step(rule, torch.zeros(3, 4), torch.zeros(3, 4), state_of(rule, (3, 4))).any()


def test_parameters_decay_before_the_update():
    rule, shape = Shampoo(lr=0.1, weight_decay=0.5), (4, 5)
    parameter, gradient = gradients(shape, 2)
    start = parameter.clone()
    update = step(rule, parameter, gradient, state_of(rule, shape))
    assert torch.equal(parameter, start.mul(1 - 0.1 * 0.5).add(update, alpha=-0.1))


def test_gradients_whose_squares_overflow_end_the_step():
    rule = Shampoo()
    with pytest.raises(TrainingError, match="clip or scale"):
        step(rule, torch.zeros(3, 4), torch.full((3, 4), 1e30), state_of(rule, (3, 4)))


def test_a_factor_that_needs_more_digits_gets_them(monkeypatch):
    """Eigenvectors in float32 may not converge where those in float64 do."""
    exact, seen = torch.linalg.eigh, []

    def eigh(matrix):
        seen.append(matrix.dtype)
        if matrix.dtype == torch.float32:
            raise torch.linalg.LinAlgError("no convergence")
        return exact(matrix)

    rule, shape = Shampoo(), (4, 6)
    (gradient,) = gradients(shape, 1)
    wanted = step(rule, torch.zeros(shape), gradient, state_of(rule, shape))
    monkeypatch.setattr(torch.linalg, "eigh", eigh)
    assert relative(step(rule, torch.zeros(shape), gradient, state_of(rule, shape)), wanted) < 1e-3
    assert seen == [torch.float32, torch.float64] * 2


@pytest.mark.parametrize("bad", [{"lr": -1.0}, {"betas": (0.9, 1.0)}, {"eps": 0.0}, {"refresh_every": 0}])
def test_options_out_of_range_are_named(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        Shampoo(**bad)
