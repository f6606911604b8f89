"""Ranks that lack gradients, have NaN, or know other plans: the same end on all of them, and none waits."""

import pytest
import torch
from tests.optim.executors.layouts import (
    SHAPES,
    interrupted_step,
    lost_updates,
    make,
    plan_hash,
    step_with_nan,
    step_without,
    unequal_plans,
    waited_for,
)
from tests.train.parallel.compress.ranks import on_ranks

from gangline.errors import NonFiniteError


@pytest.mark.parametrize("layout", ["copies", "rows"])
def test_a_gradient_missing_on_one_rank_counts_as_zeros_and_on_all_as_none(layout):
    for unchanged in on_ranks(2, step_without, layout, {"a.weight": [1], "experts": [0, 1]}):
        assert [name for name, each in unchanged.items() if each] == ["experts"]


@pytest.mark.parametrize("layout", ["copies", "rows"])
def test_nan_in_one_matrix_leaves_the_others_and_its_own_state_alone(layout):
    for found in on_ranks(2, step_with_nan, layout, "skip"):
        assert set(found["changed"]) == {*SHAPES, "bias"} - {"qkv"}
        assert found["kept"]
        assert not found["error"]


@pytest.mark.parametrize("layout", ["copies", "rows"])
def test_nan_that_raises_is_named_on_all_ranks_before_anything_changed(layout):
    for found in on_ranks(2, step_with_nan, layout, "raise"):
        assert not found["changed"]
        assert found["error"] == "gradients of qkv are not finite; nothing was updated"


@pytest.mark.parametrize("layout", ["copies", "rows"])
@pytest.mark.parametrize("answer", ["raise", "skip"])
def test_nan_in_a_parameter_of_the_elementwise_rule_is_answered_alike(layout, answer):
    for found in on_ranks(2, step_with_nan, layout, answer, "bias"):
        assert set(found["changed"]) == (set(SHAPES) if answer == "skip" else set())
        assert found["error"] == ("" if answer == "skip" else "gradients of bias are not finite; nothing was updated")


def test_another_order_on_one_rank_is_the_same_plan():
    assert len(set(on_ranks(2, plan_hash, 1))) == 1


def test_other_options_on_one_rank_are_refused_on_all():
    for error in on_ranks(2, unequal_plans):
        assert error.startswith("ranks planned the optimizer differently")


def test_an_interrupted_step_leaves_no_state_that_a_living_rank_may_send():
    assert interrupted_step() == [True, True, False]


def test_ranks_that_wait_for_a_slow_owner_say_so_and_the_slow_one_does_not():
    waited = on_ranks(2, waited_for, 1, 0.6)
    assert waited[0] > 0.3
    assert waited[1] < 0.3


def test_an_update_that_no_one_computes_ends_the_run():
    errors = on_ranks(2, lost_updates)
    assert errors[0] == errors[1]
    assert errors[0].startswith("the first step has 12 matrices, but ")


@pytest.mark.parametrize("value", [1e30, -3e38, 1e-30])
def test_a_gradient_whose_square_is_out_of_range_is_finite(value):
    parameters, optimizer = make("local", rule="muon", shapes={"w": (4, 6)})
    before = parameters["w"].detach().clone()
    parameters["w"].grad = torch.full((4, 6), value)
    parameters["bias"].grad = torch.full((5, 3), value)
    optimizer.step()
    assert parameters["w"].isfinite().all()
    assert not torch.equal(parameters["w"], before)
    parameters["w"].grad[0, 0] = float("inf")
    with pytest.raises(NonFiniteError, match="gradients of w are not finite"):
        optimizer.step()
