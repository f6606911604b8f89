"""Merge rules against slow versions, what is refused, and poisoners under each rule."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.federated.merge import clip, means_of, merge, norm_of, refusal, weight_of
from gangline.federated.protocol import Contribution
from gangline.spec.federated import FederatedTable

TABLE = FederatedTable(local_steps=1, quorum=2)
WEIGHTS = {"a": np.zeros((2, 2), np.float32), "b": np.zeros(3, np.float32)}
ROSTER = tuple(f"m{number}" for number in range(12))


def answer(number, *, weight=1.0, scale=1.0, loss=1.0, metrics=None):
    draws = np.random.default_rng(number)
    change = {name: (scale * draws.normal(size=each.shape)).astype(np.float32) for name, each in WEIGHTS.items()}
    return Contribution(members=(f"m{number}",), weight=weight, change=change, loss=loss, metrics=metrics or {})


@given(st.lists(st.floats(1, 100), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_the_mean_is_that_of_the_oracle_in_any_order(weights, random):
    answers = [answer(number, weight=weight) for number, weight in enumerate(weights)]
    table = replace(TABLE, most_samples=100)
    total = sum(weights)
    oracle = {
        name: sum(each.change[name].astype(np.float64) * each.weight for each in answers) / total for name in WEIGHTS
    }
    found = merge(table, answers)
    assert all(np.allclose(found[name], oracle[name], atol=1e-6) for name in WEIGHTS)
    random.shuffle(answers)
    again = merge(table, answers)
    assert all(np.array_equal(found[name], again[name]) for name in WEIGHTS)


def test_an_answer_weighs_no_more_than_the_table_lets_it():
    honest, greedy = answer(0, weight=10.0), answer(1, weight=1e9)
    found = merge(replace(TABLE, most_samples=10), [honest, greedy])
    assert np.allclose(found["b"], (honest.change["b"] + greedy.change["b"]) / 2, atol=1e-6)
    alike = merge(TABLE, [honest, greedy])
    assert np.allclose(alike["b"], found["b"], atol=1e-6)
    assert (weight_of(TABLE, 500), weight_of(replace(TABLE, most_samples=10), 500)) == (1.0, 10.0)


@pytest.mark.parametrize("number", [3, 5, 10, 11])
def test_median_and_trimmed_mean_are_those_of_sorted_numbers(number):
    answers = [answer(each) for each in range(number)]
    stacked = np.sort(np.stack([each.change["a"] for each in answers]), axis=0).astype(np.float64)
    cut = -(-number // 10)
    median, trimmed = (merge(replace(TABLE, merge=rule), answers)["a"] for rule in ("median", "trimmed"))
    middle = (stacked[number // 2] + stacked[(number - 1) // 2]) / 2
    assert np.allclose(median, middle, atol=1e-6)
    assert np.allclose(trimmed, stacked[cut : number - cut].mean(axis=0), atol=1e-6)


def test_a_change_is_clipped_over_all_its_tensors_together():
    large = answer(0, scale=100.0)
    clipped = clip(large.change, 2.0)
    assert norm_of(clipped) == pytest.approx(2.0, rel=1e-6)
    ratio = large.change["a"].ravel()[0] / clipped["a"].ravel()[0]
    assert np.allclose(large.change["b"], clipped["b"] * ratio, rtol=1e-5)
    small = answer(0, scale=1e-3)
    assert all(np.array_equal(each, small.change[name]) for name, each in clip(small.change, 2.0).items())


@pytest.mark.parametrize(
    ("reason", "wrong"),
    [
        ("not_finite", {"change": {**answer(0).change, "b": np.array([1, np.nan, 0], np.float32)}}),
        ("not_finite", {"change": {**answer(0).change, "b": np.array([1, np.inf, 0], np.float32)}}),
        ("not_finite", {"loss": float("nan")}),
        ("not_finite", {"weight": float("inf")}),
        ("not_finite", {"weight": -1.0}),
        ("not_finite", {"metrics": {"accuracy": (float("nan"), 1.0)}}),
        ("shape", {"change": {**answer(0).change, "b": np.zeros(4, np.float32)}}),
        ("shape", {"change": {**answer(0).change, "b": np.zeros(3, np.float64)}}),
        ("shape", {"change": {**answer(0).change, "b": np.zeros(3, object)}}),
        ("shape", {"change": {**answer(0).change, "b": b"pickled"}}),
        ("shape", {"change": {"a": answer(0).change["a"]}}),
        ("shape", {"change": {**answer(0).change, "c": np.zeros(3, np.float32)}}),
        ("unknown_member", {"members": ("mallory",)}),
        ("unknown_member", {"members": ()}),
        ("second_answer", {"members": ("m1", "m1")}),
    ],
)
def test_wrong_answers_are_refused_by_reason(reason, wrong):
    assert refusal(replace(answer(0), **wrong), WEIGHTS, ROSTER) == reason
    assert refusal(answer(0), WEIGHTS, ROSTER) is None


def test_means_are_over_all_samples():
    answers = [
        answer(0, weight=1.0, loss=1.0, metrics={"auc": (1.0, 2.0)}),
        answer(1, weight=3.0, loss=2.0, metrics={"auc": (6.0, 8.0), "own": (0.0, 0.0)}),
    ]
    loss, metrics = means_of(answers)
    assert loss == pytest.approx(1.75)
    assert metrics == {"auc": pytest.approx(0.7)}
    assert means_of([]) == (None, {})


def _trained(rule, *, poisoned, clip_norm=1.0):
    """Accuracy of logistic regression after 30 rounds of 10 members, two of whom send ten times the opposite."""
    draws = np.random.default_rng(3)
    true = draws.normal(size=20)
    inputs = draws.normal(size=(10, 200, 20))
    labels = (inputs @ true > 0).astype(np.float64)
    held = draws.normal(size=(2000, 20))
    weights = np.zeros(20)
    table = replace(TABLE, merge=rule, clip_norm=clip_norm)
    for _ in range(30):
        answers = []
        for member in range(10):
            own = weights.copy()
            for _ in range(5):
                guess = 1 / (1 + np.exp(-np.clip(inputs[member] @ own, -50, 50)))
                own -= 0.5 * inputs[member].T @ (guess - labels[member]) / 200
            change = (own - weights) * (-10 if poisoned and member < 2 else 1)
            answers.append(
                Contribution(members=(f"m{member}",), weight=1.0, change={"w": change.astype(np.float32)}, loss=None)
            )
        weights = weights + merge(table, answers)["w"]
    return float(np.mean((held @ weights > 0) == (held @ true > 0)))


@pytest.mark.row("FL7")
def test_median_and_trimmed_mean_bear_two_poisoners_of_ten_and_a_mean_without_clipping_does_not():
    for rule in ("median", "trimmed"):
        assert _trained(rule, poisoned=True) >= _trained(rule, poisoned=False) - 0.03
    honest = _trained("mean", poisoned=False, clip_norm=None)
    assert _trained("mean", poisoned=True, clip_norm=None) < honest - 0.2
    assert _trained("mean", poisoned=True) >= _trained("mean", poisoned=False) - 0.1
