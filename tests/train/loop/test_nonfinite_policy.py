"""Steps that are not finite: stop, skip, rollback, each with its bound."""

import math

import pytest

from gangline.errors import NonFiniteError
from gangline.train.loop.nonfinite_policy import MAX_ROLLBACKS, NonFinitePolicy


def judge(policy, loss, start=0):
    return policy.judge(step=1, loss=loss, norm=1.0, span=(start, start + 8))


def test_stop_raises_at_once_and_names_the_samples():
    with pytest.raises(NonFiniteError, match=r"samples 0 to 7: loss nan"):
        judge(NonFinitePolicy(mode="stop", max_in_a_row=10), math.nan)


def test_infinite_norm_is_as_bad_as_a_loss():
    with pytest.raises(NonFiniteError):
        NonFinitePolicy(mode="stop", max_in_a_row=10).judge(step=1, loss=1.0, norm=math.inf, span=(0, 8))


def test_skip_counts_in_a_row_only():
    policy = NonFinitePolicy(mode="skip", max_in_a_row=2)
    answers = [judge(policy, loss) for loss in (math.nan, math.nan, 1.0, math.inf, math.nan)]
    assert answers == ["skip", "skip", "apply", "skip", "skip"]
    with pytest.raises(NonFiniteError, match="3 such steps in a row"):
        judge(policy, math.nan)


def test_rollback_records_the_samples_and_ends_after_three():
    policy = NonFinitePolicy(mode="rollback", max_in_a_row=10)
    for number in range(MAX_ROLLBACKS):
        assert judge(policy, math.nan, start=8 * number) == "rollback"
    assert policy.skipped == [(0, 8), (8, 16), (16, 24)]
    with pytest.raises(NonFiniteError, match="3 rollbacks did not help"):
        judge(policy, math.nan)


def test_a_few_parameters_are_named_and_the_others_counted():
    policy = NonFinitePolicy(mode="stop", max_in_a_row=10)
    names = [f"layers.{number}" for number in range(11)]
    with pytest.raises(NonFiniteError, match=r"of layers\.0, .*layers\.7 and 3 more are not finite; nothing was"):
        policy.judge(step=1, loss=1.0, norm=math.nan, span=(0, 8), not_finite=names)
