"""Whole searches over made-up histories, by a measurer that trains in no time."""

import random
from dataclasses import replace

import pytest

from gangline.bisect.bisector import BisectLimits, Bisector
from gangline.bisect.recorded_values import CommitValues
from gangline.spec.bisect import BisectCommit, BisectState


class Made:
    """A history of means; trainings add noise, cost a second each, and are remembered."""

    def __init__(self, means, *, noise=0.0, seed=0, known=(), broken=(), keys=None, silent=()):
        self.means, self.noise, self.dice = means, noise, random.Random(seed)
        self.values = {sha: {} for sha in means}
        self.trained, self.broken, self.keys, self.silent = [], set(broken), keys or {}, silent
        for sha in known:
            self.values[sha] = {n: self.draw(sha) for n in (1, 2, 3)}

    def draw(self, sha):
        return self.means[sha] + self.dice.gauss(0, 1) * self.noise

    def recorded(self, sha):
        runs = tuple(f"run-{sha}-{seed}" for seed in self.values[sha])
        return CommitValues(values=dict(self.values[sha]), runs=runs, seconds=1.0 * self.trained.count(sha))

    def key(self, sha):
        return self.keys.get(sha, "")

    def train(self, sha, seeds):
        if sha in self.broken:
            return "it does not build"
        if sha in self.silent:
            return ""
        for seed in seeds:
            self.values[sha][seed] = self.draw(sha)
            self.trained.append(sha)
        return ""


def history(means):
    return {f"c{number:07d}": mean for number, mean in enumerate(means)}


def start(means, **changes):
    shas = list(history(means))
    sides = ["good", *["unknown"] * (len(shas) - 2), "bad"]
    suspects = tuple(BisectCommit(sha=sha, side=side) for sha, side in zip(shas, sides, strict=True))
    given = {"id": "x", "project": "p", "metric": "loss", "at": 10, "steps": 20, "seeds": 3, "error": 0.05} | changes
    return BisectState(**{"better": "lower"} | given, suspects=suspects)


def seek(means, bounds=None, state=None, **made):
    measurer = Made(history(means), **made)
    kept = []
    seeker = Bisector(state or start(means), measurer, bounds or BisectLimits(), on_state=kept.append)
    return seeker.run(), measurer, kept


def step(length, first_bad, good=2.0, bad=3.0):
    return [good] * first_bad + [bad] * (length - first_bad)


def test_the_first_bad_commit_of_twelve_is_found_with_few_trainings():
    ended, measurer, _ = seek(step(12, 7), noise=0.02)
    assert (ended.ending, ended.first_bad) == ("found", "c0000007")
    assert len(measurer.trained) <= 6 + 2 * 4
    assert ended.spent_seconds == len(measurer.trained)


@pytest.mark.parametrize("bound", [0.2, 0.05, 0.01])
def test_of_a_hundred_noisy_histories_no_more_go_wrong_than_the_bound_allows(bound):
    wrong = []
    for number in range(100):
        first_bad = random.Random(number).randint(1, 11)
        means = step(12, first_bad, bad=2.0 + 0.03)
        ended, *_ = seek(means, state=start(means, error=bound), noise=0.01, seed=number)
        if ended.ending == "found" and ended.first_bad != f"c{first_bad:07d}":
            wrong.append(number)
    assert len(wrong) <= 100 * bound + 3 * (100 * bound * (1 - bound)) ** 0.5, wrong


def test_what_records_report_is_free():
    means = step(12, 7)
    ended, measurer, _ = seek(means, noise=0.02, known=history(means))
    assert ended.first_bad == "c0000007"
    assert measurer.trained == []
    assert {each.origin for each in ended.suspects} == {"records"}


def test_commits_that_train_alike_are_asked_once():
    means = step(9, 6)
    keys = {sha: ("a" if number < 6 else "b") for number, sha in enumerate(history(means))}
    ended, measurer, _ = seek(means, noise=0.02, keys=keys)
    assert ended.first_bad == "c0000006"
    assert set(measurer.trained) == {"c0000000", "c0000008"}
    assert "same as c0000000" in {each.origin for each in ended.suspects}


def test_what_does_not_build_is_passed_over_and_named_where_it_hides_the_answer():
    ended, *_ = seek(step(8, 4), noise=0.02, broken=["c0000003", "c0000004"])
    assert ended.ending == "between"
    assert ended.first_bad is None
    assert {each.reason for each in ended.suspects if each.side == "skipped"} == {"it does not build"}
    hidden, *_ = seek(step(8, 6), noise=0.02, broken=["c0000003"])
    assert hidden.first_bad == "c0000006"


def test_ends_that_do_alike_are_reported_and_cost_no_search():
    ended, measurer, _ = seek([2.0] * 8, noise=0.1)
    assert ended.ending == "same"
    assert set(measurer.trained) == {"c0000000", "c0000007"}
    exact, measurer, _ = seek([2.0] * 8)
    assert (exact.ending, len(measurer.trained)) == ("same", 6)


def test_a_bad_end_that_is_better_ends_the_search_at_once():
    ended, measurer, _ = seek([3.0, 3.0, 3.0, 2.0], noise=0.02)
    assert ended.ending == "unfit"
    assert ended.notes == ("loss is better at the bad end, but lower values are better",)
    assert len(measurer.trained) == 6


def test_an_end_that_cannot_be_measured_is_named():
    ended, *_ = seek(step(6, 3), noise=0.02, broken=["c0000005"])
    assert (ended.ending, ended.notes) == ("unfit", ("the bad end cannot be measured: it does not build",))
    assert not ended.suspects[-1].unreported
    ended, *_ = seek(step(6, 3), noise=0.02, silent=["c0000000"])
    assert ended.notes == ("the good end cannot be measured: it has 0 of 3 values of loss",)
    assert ended.suspects[0].unreported


def test_a_budget_spent_before_the_ends_are_distinguished_says_so_until_a_larger_one_decides():
    means = step(6, 3)
    ended, *_ = seek(means, BisectLimits(budget_seconds=4, training_seconds=1), noise=0.02)
    assert (ended.ending, ended.notes) == ("budget", ("whether the bad end is worse at all is not clear yet",))
    reported, *_ = seek(means, state=ended, noise=0.02)
    assert (reported.first_bad, reported.notes) == ("c0000003", ())


def test_the_budget_ends_it_and_a_larger_one_continues():
    means = step(12, 7)
    ended, measurer, _ = seek(means, BisectLimits(budget_seconds=8, training_seconds=1), noise=0.02)
    assert ended.ending == "budget"
    assert 0 < ended.spent_seconds <= 8
    measured_values = measurer.values
    again = Made(history(means), noise=0.02)
    again.values = measured_values
    again.trained = list(measurer.trained)
    more = Bisector(ended, again, BisectLimits(budget_seconds=30), on_state=lambda _: None).run()
    assert (more.ending, more.first_bad) == ("found", "c0000007")


def test_killed_anywhere_it_continues_without_asking_twice():
    means = step(12, 5)
    whole, once, kept = seek(means, noise=0.02)
    for state in kept:
        measurer = Made(history(means), noise=0.02)
        measurer.values = {sha: dict(once.values[sha]) for sha in once.values}
        done = {each.sha: each for each in state.suspects}
        measurer.values = {sha: {int(n): v for n, v in done[sha].values.items()} for sha in done}
        ended = Bisector(state, measurer, BisectLimits(), on_state=lambda _: None).run()
        assert ended.first_bad == whole.first_bad
        assert not any(sha in measurer.trained and done[sha].side in {"good", "bad"} for sha in list(done)[1:-1])


def test_a_history_that_turned_before_is_answered_for_its_last_turn_and_reported():
    means = [2.0, 3.0, 2.0, 2.0, 2.0, 3.0, 3.0]
    ended, *_ = seek(means, noise=0.01, known=["c0000001", "c0000002"])
    assert ended.first_bad == "c0000005"
    assert "c0000001 was worse, too" in ended.notes[0]


def test_a_commit_between_both_ends_is_named():
    ended, *_ = seek([2.0, 2.0, 2.4, 2.4, 3.0, 3.0, 3.0], noise=0.001)
    assert ended.ending == "found"
    assert "similar to neither end" in ended.notes[-1]


def test_a_training_that_diverges_is_bad():
    means = step(8, 3, bad=float("inf"))
    ended, *_ = seek(means, noise=0.01)
    assert ended.first_bad == "c0000003"
    assert BisectState.from_json(ended.to_json()) == ended


def test_an_ended_search_is_not_asked_again():
    means = step(6, 2)
    ended, *_ = seek(means, noise=0.01)
    measurer = Made(history(means))
    assert Bisector(ended, measurer, BisectLimits(), on_state=lambda _: None).run() == replace(ended)
    assert measurer.trained == []
