"""Curves: every step counts once, 64 places at most."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.line.results import loss_curve
from gangline.spec.measurements import BrokenSteps, Curve, CurvePoint


def test_a_row_that_goes_back_takes_the_place_of_its_step_and_all_later_ones():
    text = b'{"step": 1, "loss": 9}\n{"step": 2, "loss": 8}\n{"step": 3, "loss": 7}\n'
    text += b'{"step": 2, "loss": 3}\n{"step": 3, "lo'
    rows = loss_curve.by_step(loss_curve.read_lines(text))
    assert loss_curve.losses_of(rows) == {1: 9.0, 2: 3.0}
    assert list(rows) == [1, 2]
    assert 3 not in rows
    assert rows[2] == {"step": 2.0, "loss": 3.0}


@given(generations=st.lists(st.tuples(st.integers(1, 30), st.integers(0, 30)), max_size=6))
def test_each_generation_counts_up_to_where_the_next_one_begins(generations):
    rows = [{"step": first + n, "of": g} for g, (first, length) in enumerate(generations) for n in range(length)]
    oracle: dict[int, float] = {}
    for row in rows:
        oracle = {step: of for step, of in oracle.items() if step < row["step"]} | {row["step"]: row["of"]}
    table = loss_curve.by_step(rows)
    assert {step: table.value("of", step) for step in table} == oracle
    assert dict(table.column("of")) == oracle


@given(steps=st.integers(1, 1000))
def test_constant_losses_give_a_constant_curve_that_ends_at_the_last_step(steps):
    points = loss_curve.thin(dict.fromkeys(range(1, steps + 1), 2.0), steps)
    assert len(points) == min(64, steps)
    assert {value for _, value in points} == {2.0}
    assert points[-1][0] == steps
    assert [step for step, _ in points] == sorted({step for step, _ in points})


@given(losses=st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=200))
def test_each_place_is_the_mean_of_its_own_steps(losses):
    steps = len(losses)
    places = min(64, steps)
    points = loss_curve.thin(dict(enumerate(losses, start=1)), steps)
    for place, (_, value) in enumerate(points):
        own = [loss for step, loss in enumerate(losses) if step * places // steps == place]
        assert abs(value - sum(own) / len(own)) < 1e-6


@given(losses=st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=400))
def test_the_final_loss_of_all_steps_is_the_last_point_of_their_curve(losses):
    by_step = dict(enumerate(losses, start=1))
    (*_, last) = loss_curve.thin(by_step, len(losses))
    assert loss_curve.final_loss(by_step) == last


@pytest.mark.parametrize("steps", [21, 100, 100_000])
def test_a_training_that_ends_early_names_no_step_that_it_did_not_make(steps):
    by_step = {step: 9.0 - step / 10 for step in range(1, 22)}
    points = loss_curve.thin(by_step, steps)
    assert points[-1][0] in (20, 21)
    assert loss_curve.final_loss(by_step) == (21, by_step[21])
    assert loss_curve.final_loss({}) is None


def test_steps_that_are_not_finite_are_joined_up_to_the_next_finite_one():
    broken = loss_curve.join_broken([3, 5, 7, 30], [1, 2, 10, 20])
    assert broken == (BrokenSteps(first=3, last=7, count=3), BrokenSteps(first=30, last=30, count=1))
    assert loss_curve.join_broken([], [1, 2]) == ()


@given(bad=st.sets(st.integers(0, 5000), min_size=1))
def test_places_that_are_not_finite_are_few_and_lose_no_step(bad):
    broken = loss_curve.join_broken(sorted(bad), [step for step in range(5001) if step not in bad])
    assert len(broken) <= 64
    assert sum(each.count for each in broken) == len(bad)
    assert all({each.first, each.last} <= bad for each in broken)
    assert {step for each in broken for step in range(each.first, each.last + 1)} >= bad


def test_steps_after_the_last_one_are_in_no_share():
    assert loss_curve.thin({step: float(step) for step in range(1, 200)}, 4) == [(1, 1), (2, 2), (3, 3), (4, 4)]


def test_values_of_a_seed_lie_at_the_points_of_the_curve_and_end_where_it_has_none():
    steps = {step: float(step) for step in range(1, 129)}
    curve = loss_curve.build_curve(steps, steps=128, base=None, floor_percent=0.1, origin="")
    assert loss_curve.seed_values(list(steps.items()), curve, steps=128) == tuple(each.value for each in curve.points)
    gap = [(step, float("nan") if step in (21, 22) else loss) for step, loss in steps.items()]
    assert loss_curve.seed_values(gap, curve, steps=128) == tuple(each.value for each in curve.points[:10])


def test_base_band_lies_next_to_the_same_places():
    base = Curve(
        points=(CurvePoint(step=1, value=3.0), CurvePoint(step=2, value=2.0)),
        seed_points={"1": (3.0, 2.0), "2": (3.2, 2.1), "3": (2.8, 1.9)},
    )
    drawn = loss_curve.build_curve({1: 3.1, 2: 5.0}, steps=2, base=base, floor_percent=0.1, origin="r")
    first, second = drawn.points
    assert first.low < first.value < first.high
    assert second.value > second.high
