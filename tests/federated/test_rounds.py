"""Rounds: quorum of the roster, lost attempts, what is refused and counted, restarts that ask nothing twice."""

from dataclasses import replace

import numpy as np
import pytest

from gangline.errors import CapacityError, GateError, TrainingError
from gangline.federated.protocol import Contribution, RoundAnswers
from gangline.federated.rounds import MOST_LOST, Rounds
from gangline.spec.federated import FederatedTable, FederationPlan

ROSTER = ("bonn", "jena", "kiel", "lyon")
PLAN = FederationPlan(table=FederatedTable(local_steps=1, quorum=3), roster=ROSTER, simulated=False)
WEIGHTS = {"w": np.zeros(2, np.float32)}


def said(name, value=1.0, *, trains=True):
    change = {"w": np.full(2, value, np.float32)} if trains else None
    return Contribution(members=(name,), weight=1.0, change=change, loss=0.5 if trains else None)


class Scripted:
    """Members that answer as the script of each attempt says."""

    def __init__(self, *script):
        self.script, self.calls = list(script), []

    def ask(self, call):
        self.calls.append(call)
        return self.script[min(len(self.calls), len(self.script)) - 1]

    def close(self):
        pass


def answers(*names, trains=True, **more):
    return RoundAnswers(contributions=tuple(said(name, trains=trains) for name in names), **more)


def test_a_quorum_merges():
    members = Scripted(answers("lyon", "bonn", "kiel", bytes_up=30, bytes_down=40))
    found = Rounds(PLAN, members).run(1, WEIGHTS)
    assert found.answered == ("bonn", "kiel", "lyon")
    assert not found.is_lost
    assert found.change["w"].tolist() == [1.0, 1.0]
    assert (found.loss, found.bytes_up, found.bytes_down, found.refused) == (0.5, 30, 40, {})


def test_fewer_than_the_quorum_merge_nothing_and_are_asked_again():
    seen = []
    members = Scripted(answers("bonn", "jena"), answers("bonn", "jena", "kiel"))
    found = Rounds(PLAN, members, on_attempt=seen.append).run(1, WEIGHTS)
    assert [(each.attempt, each.is_lost, each.change is None) for each in seen] == [(1, True, True), (2, False, False)]
    assert found is seen[-1]
    assert [call.attempt for call in members.calls] == [1, 2]
    assert all(call.weights is WEIGHTS for call in members.calls)


def test_five_lost_attempts_in_a_row_are_an_error_that_says_who_was_refused():
    members = Scripted(answers("bonn", refused=(("jena", "code"), ("kiel", "code"))))
    with pytest.raises(CapacityError, match=r"5 times in a row.*1 of 4 \(code 2 refused\)") as raised:
        Rounds(PLAN, members).run(7, WEIGHTS)
    assert raised.value.exit_code == 20
    assert len(members.calls) == MOST_LOST


@pytest.mark.parametrize(("reason", "error"), [("budget", GateError), ("error", TrainingError)])
def test_refusals_that_leave_no_quorum_end_the_run_at_once(reason, error):
    members = Scripted(answers("bonn", "lyon", refused=(("jena", reason), ("kiel", reason))))
    with pytest.raises(error, match="found 2 of 4 members left"):
        Rounds(PLAN, members).run(7, WEIGHTS)
    assert len(members.calls) == 1


def test_a_restarted_coordinator_asks_for_no_attempt_of_an_earlier_generation():
    first, second = (Scripted(answers("bonn")) for _ in range(2))
    for generation, members in enumerate((first, second)):
        with pytest.raises(CapacityError):
            Rounds(PLAN, members, generation=generation).run(3, WEIGHTS)
    attempts = [call.attempt for members in (first, second) for call in members.calls]
    assert attempts == list(range(1, 2 * MOST_LOST + 1))


@pytest.mark.parametrize(
    ("reason", "wrong"),
    [
        ("second_answer", said("bonn", 100.0)),
        ("unknown_member", said("mallory", 100.0)),
        ("not_finite", said("lyon", np.nan)),
        ("shape", replace(said("lyon"), change={"w": np.zeros(3, np.float32)})),
        ("old_round", said("lyon", trains=False)),
    ],
)
def test_what_is_refused_is_counted_and_never_merged(reason, wrong):
    good = answers("bonn", "jena", "kiel")
    found = Rounds(PLAN, Scripted(replace(good, contributions=(*good.contributions, wrong)))).run(1, WEIGHTS)
    assert found.refused == {reason: 1}
    assert found.answered == ("bonn", "jena", "kiel")
    assert found.change["w"].tolist() == [1.0, 1.0]


def test_the_quorum_counts_answers_that_count():
    good = answers("bonn", "jena")
    bad = replace(good, contributions=(*good.contributions, said("bonn"), said("kiel", np.inf)))
    members = Scripted(bad, answers(*ROSTER))
    assert Rounds(PLAN, members).run(1, WEIGHTS).attempt == 2


def test_the_round_that_judges_has_no_change_and_sums_metrics():
    judged = [replace(said(name, trains=False), metrics={"auc": (3.0, 4.0)}) for name in ROSTER]
    found = Rounds(PLAN, Scripted(RoundAnswers(contributions=tuple(judged)))).run(2, WEIGHTS, trains=False)
    assert (found.change, found.loss, found.metrics) == (None, None, {"auc": 0.75})
    trained = Scripted(answers(*ROSTER), RoundAnswers(contributions=tuple(judged)))
    assert Rounds(PLAN, trained).run(2, WEIGHTS, trains=False).refused == {}


def test_one_contribution_of_a_secure_sum_counts_its_members():
    together = replace(said("bonn"), members=("bonn", "jena", "kiel"), weight=3.0)
    found = Rounds(PLAN, Scripted(RoundAnswers(contributions=(together,)))).run(1, WEIGHTS)
    assert found.answered == ("bonn", "jena", "kiel")
