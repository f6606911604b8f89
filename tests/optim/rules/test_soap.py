"""SOAP against the algorithm of its paper in float64."""

from itertools import pairwise

import pytest
import torch
from tests.optim.rules.one_matrix import gradients, relative, state_of, step
from tests.oracles.matrix_rules import soap

from gangline.errors import ConfigError
from gangline.optim.rules.soap import Soap


def updates(rule, given, dtype=None):
    shape = tuple(given[0].shape)
    state = state_of(rule, shape, dtype)
    every = rule.refresh_every
    return [
        step(rule, torch.zeros(shape), each, state, refresh=at % every == 0) for at, each in enumerate(given)
    ], state


@pytest.mark.parametrize(
    ("shape", "largest"),
    [((9, 9), 10_000), ((6, 20), 12), ((20, 6), 12), ((1, 7), 1), ((7, 1), 1), ((6, 9), 3)],
)
@pytest.mark.parametrize("every", [1, 3, 100])
def test_updates_are_the_algorithm(shape, largest, every):
    """Where both sides have a basis the matrix is square: else the null space of a factor has no basis of its own."""
    rule, given = Soap(refresh_every=every, largest_side=largest), gradients(shape, 12)
    wanted = soap([each.double().numpy() for each in given], refresh_every=every, largest_side=largest)
    found, state = updates(rule, given, torch.float64)
    assert not found[0].any()
    assert max(map(relative, found[1:], wanted[1:])) < 1e-6
    assert state["step"].tolist() == [[12]]
    rounded, _ = updates(rule, given)
    assert max(map(relative, rounded[1:], wanted[1:])) < 1e-3


def test_steps_are_those_of_the_authors_code():
    """Diagonal that nikhilvyas/SOAP (a1e5535) gives after these gradients: `lr=1, weight_decay=0,
    precondition_frequency=3`. Over 30 gradients and other shapes, the updates of both differed by 1e-5 at most."""
    rule, parameter = Soap(lr=1.0, weight_decay=0.0, refresh_every=3), torch.zeros(5, 5)
    state = state_of(rule, (5, 5))
    for at, gradient in enumerate(gradients((5, 5), 12, seed=3)):
        step(rule, parameter, gradient, state, refresh=at % 3 == 0)
    assert parameter.diag().tolist() == pytest.approx([2.189, -0.5088, 1.9568, -6.2761, -6.6007], abs=2e-4)


def test_moments_follow_their_basis_when_its_order_changes():
    """The second gradient is largest where the first was smallest: the refreshed basis has another order."""
    rising, falling = torch.diag(torch.arange(1.0, 7.0)), torch.diag(torch.arange(6.0, 0.0, -1.0)) * 10
    given = [rising, falling, falling, falling + 0.1, falling]
    rule = Soap(refresh_every=1)
    wanted = soap([each.double().numpy() for each in given], refresh_every=1)
    found, _ = updates(rule, given)
    assert max(map(relative, found[1:], wanted[1:])) < 1e-3


def test_a_wide_matrix_descends_whatever_the_basis_of_its_null_space():
    torch.manual_seed(0)
    target, parameter = torch.randn(6, 20), torch.zeros(6, 20)
    rule, state = Soap(lr=0.1, weight_decay=0.0, refresh_every=5), state_of(Soap(), (6, 20))
    for at in range(60):
        step(rule, parameter, parameter - target, state, refresh=at % 5 == 0)
    assert (parameter - target).norm() < 0.2 * target.norm()
    for side, length in (("left", 6), ("right", 20)):
        basis = state[f"basis_{side}"]
        torch.testing.assert_close(basis.T @ basis, torch.eye(length), atol=1e-5, rtol=0)


def test_bases_change_where_they_are_due_and_in_the_first_step():
    rule, shape = Soap(), (5, 5)
    state, bases = state_of(rule, shape), []
    for at, gradient in enumerate(gradients(shape, 5)):
        step(rule, torch.zeros(shape), gradient, state, refresh=at == 3)
        bases.append(state["basis_left"].clone())
    assert [torch.equal(*pair) for pair in pairwise(bases)] == [True, True, False, True]
    assert bases[0].any()


def test_a_matrix_counts_its_own_steps():
    """A gradient that was missing at first: the bias corrections are those of the steps that were made."""
    rule, shape = Soap(), (5, 5)
    late, early = state_of(rule, shape), state_of(rule, shape)
    for at, gradient in enumerate(gradients(shape, 4)):
        one = step(rule, torch.zeros(shape), gradient, early)
        two = step(rule, torch.zeros(shape), gradient, late, step=at + 100)
        assert torch.equal(one, two)


def test_a_zero_gradient_gives_a_zero_update():
    rule = Soap()
    found, _ = updates(rule, [torch.zeros(3, 4)] * 3)
    assert not any(each.any() for each in found)


def test_parameters_decay_before_the_update():
    rule, shape = Soap(lr=0.1, weight_decay=0.5), (4, 5)
    parameter, first, second = gradients(shape, 3)
    state = state_of(rule, shape)
    step(rule, parameter, first, state)
    start = parameter.clone()
    update = step(rule, parameter, second, state)
    assert torch.equal(parameter, start.mul(1 - 0.1 * 0.5).add(update, alpha=-0.1))


@pytest.mark.parametrize(
    "bad",
    [{"lr": -1.0}, {"betas": (1.0, 0.9)}, {"shampoo_beta": -0.1}, {"refresh_every": 0}, {"largest_side": 0}],
)
def test_options_out_of_range_are_named(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        Soap(**bad)
