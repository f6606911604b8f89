"""Rounds of a population, against one that plays the whole history again."""

from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.oracles.population import replay

from gangline.search.population import Member, next_round, round_ends
from gangline.spec.search import Dimension

ROUNDS = 1_000
AXES = {
    "optimizer.elementwise.lr": Dimension(low=1e-4, high=1e-1, log=True),
    "train.clip_norm": Dimension(low=0.25, high=2.0, step=0.25),
    "train.schedule.warmup_steps": Dimension(low=0, high=40),
    "optimizer.elementwise.rule": Dimension(choices=("adamw", "sgd")),
}


def as_oracle(space):
    return {
        key: ("choices", list(axis.choices)) if axis.choices
        else ("range", axis.low, axis.high, axis.step or (1 if axis.is_whole else None))
        for key, axis in space.items()
    }  # fmt: skip


def first_settings(space, size, draw):
    def value(axis):
        if axis.choices:
            return draw.choice(axis.choices)
        if step := axis.step or (1 if axis.is_whole else None):
            return axis.low + draw.randrange(int((axis.high - axis.low) // step) + 1) * step
        return draw.uniform(axis.low, axis.high)

    return [{key: value(axis) for key, axis in sorted(space.items())} for _ in range(size)]


def play(space, size, rounds, *, better, seed, failing):
    """Every round by place, and all values; values fall and rise by chance, and members fail now and then."""
    draw = Random(seed)
    members = [(None, each) for each in first_settings(space, size, draw)]
    played, values = [members], []
    for number in range(1, rounds + 1):
        values.append([None if draw.random() < failing else round(draw.random(), 1) for _ in range(size)])
        ended = [
            Member(trial=(number - 1) * size + place, settings=settings, value=values[-1][place])
            for place, (_, settings) in enumerate(members)
        ]
        following = next_round(ended, space, better=better, seed=seed, round_number=number)
        members = [(each.parent, each.settings) for each in following]
        played.append(members)
        if not members:
            break
    return played, values


@settings(max_examples=25, deadline=None, phases=[Phase.generate])  # a smaller example would take minutes to find
@given(
    size=st.integers(4, 50), seed=st.integers(0, 2**31), better=st.sampled_from(["lower", "higher"]),
    failing=st.sampled_from([0.0, 0.1, 0.6]), names=st.sets(st.sampled_from(sorted(AXES)), min_size=1),
)  # fmt: skip
def test_rounds_are_those_of_the_oracle(size, seed, better, failing, names):
    space = {name: AXES[name] for name in names}
    played, values = play(space, size, ROUNDS // 25, better=better, seed=seed, failing=failing)
    assert played == replay(values, [each for _, each in played[0]], as_oracle(space), better=better, seed=seed)


def test_a_parent_always_has_a_checkpoint_and_settings_stay_in_the_space():
    played, values = play(AXES, 8, ROUNDS, better="lower", seed=7, failing=0.2)
    assert len(played) == ROUNDS + 1
    for number, members in enumerate(played[1:], start=1):
        for place, (parent, chosen) in enumerate(members):
            before, at = divmod(parent, 8)
            assert before == number - 1
            assert values[before][at] is not None
            assert 1e-4 <= chosen["optimizer.elementwise.lr"] <= 1e-1
            assert chosen["train.schedule.warmup_steps"] in range(41), (number, place)


def test_the_worst_takes_from_the_best_and_the_others_go_on():
    space = {"optimizer.elementwise.lr": AXES["optimizer.elementwise.lr"]}
    ended = [
        Member(trial=place, settings={"optimizer.elementwise.lr": 0.01 * (place + 1)}, value=value)
        for place, value in enumerate([3.0, 1.0, 4.0, 2.0])
    ]
    following = next_round(ended, space, better="lower", seed=1, round_number=1)
    assert [each.parent for each in following] == [0, 1, 1, 3]
    assert following[2].settings["optimizer.elementwise.lr"] in (0.016, 0.025)
    assert following[0].settings == ended[0].settings
    assert [each.parent for each in next_round(ended, space, better="higher", seed=1, round_number=1)] == [0, 2, 2, 3]


@pytest.mark.parametrize(
    ("asked", "ends"),
    [
        ({"trials": 40, "min_steps": None}, (80, 160, 240, 320, 400)),
        ({"trials": 40, "min_steps": 150}, (150, 300, 400)),
        ({"trials": 4, "min_steps": None}, (400,)),
    ],
)
def test_rounds_end_with_the_training(asked, ends):
    assert round_ends(steps=400, size=8, **asked) == ends
