"""What a coordinator takes from a member: bytes of the right round, shape and size, or a counted refusal."""

import json
import pickle

import numpy as np
import pytest

from gangline.errors import IntegrityError
from gangline.federated.protocol import Contribution, RoundCall, Spent, pack_tensors
from gangline.flare.open_round import PlainRound
from gangline.flare.wire import answer_payload, call_payload, read_answer, read_call, refused_payload

ROSTER = ("aachen", "bremen")
WEIGHTS = {"w": np.ones((2, 3), np.float32), "b": np.zeros(3, np.float32)}
SPENT = Spent(epsilon=1.5, accountant="opacus 1.6.0")
CALL = RoundCall(number=4, attempt=2, trains=True, weights=WEIGHTS, seconds=9.0)


def payload(*, call=CALL, change=None, **changed):
    given = {"members": ("aachen",), "weight": 5.0, "loss": 0.25, "metrics": {"auc": (3.0, 4.0)}} | changed
    answer = Contribution(change=WEIGHTS if change is None else change, **given)
    return answer_payload(call, answer, spent=SPENT)


def reason_of(given, member="aachen"):
    found = read_answer(given, CALL, member, ROSTER)
    assert not found.contributions
    [(name, reason)] = found.refused
    assert name == member
    return reason


def test_a_call_and_an_answer_arrive_as_they_were_sent():
    call = read_call(call_payload(CALL))
    assert (call.number, call.attempt, call.trains, call.seconds) == (4, 2, True, 9.0)
    assert np.array_equal(call.weights["w"], WEIGHTS["w"])
    found = read_answer(payload(), CALL, "aachen", ROSTER)
    [answer] = found.contributions
    assert (answer.members, answer.weight, answer.loss, answer.metrics) == (("aachen",), 5.0, 0.25, {"auc": (3.0, 4.0)})
    assert found.spent == SPENT


def test_the_name_of_an_answer_is_that_of_the_certificate():
    [answer] = read_answer(payload(members=("bremen", "celle")), CALL, "aachen", ROSTER).contributions
    assert answer.members == ("aachen",)
    assert reason_of(payload(), member="dresden") == "unknown_member"


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_refused(value):
    assert reason_of(payload(change=WEIGHTS | {"b": np.array([0, value, 0], np.float32)})) == "not_finite"
    given = payload()
    given["answer"] = given["answer"].replace(b"0.25", b"NaN")
    assert reason_of(given) == "shape"


@pytest.mark.parametrize("weight", [0.0, -1.0])
def test_an_answer_weighs_more_than_nothing(weight):
    assert reason_of(payload(weight=weight)) == "not_finite"


@pytest.mark.parametrize(
    "change",
    [{"w": WEIGHTS["w"]}, WEIGHTS | {"b": np.zeros((3, 1), np.float32)}, WEIGHTS | {"extra": np.zeros(1, np.float32)}],
    ids=["missing", "reshaped", "more"],
)
def test_another_shape_is_refused(change):
    assert reason_of(payload(change=change)) == "shape"


@pytest.mark.parametrize("number", [{"number": 3}, {"attempt": 1}])
def test_an_answer_to_another_round_or_attempt_is_refused(number):
    given = {"number": 4, "attempt": 2} | number
    old = RoundCall(trains=True, weights=WEIGHTS, seconds=9.0, **given)
    assert reason_of(payload(call=old)) == "old_round"


def test_an_answer_larger_than_the_model_is_refused_before_it_is_read():
    given = payload() | {"change": b"\0" * 200_000}
    assert reason_of(given) == "size"


@pytest.mark.parametrize(
    "change", [pickle.dumps(WEIGHTS), WEIGHTS["w"], [1.0], None, pack_tensors(WEIGHTS)[:-4]],
    ids=["pickle", "array", "list", "nothing", "part"],
)  # fmt: skip
def test_anything_but_arrays_as_bytes_is_refused(change):
    assert reason_of(payload() | {"change": change}) == "shape"


@pytest.mark.parametrize("answer", [b"[]", b"", b"\xff", b"{" * 100_000, 3])
def test_anything_but_an_answer_is_refused(answer):
    assert reason_of(payload() | {"answer": answer}) == "shape"


def test_of_two_answers_of_a_member_the_first_counts():
    round_ = PlainRound(CALL, ROSTER)
    for weight in (5.0, 7.0):
        round_.received("aachen", payload(weight=weight))
    round_.received("dresden", payload())
    found = round_.answers()
    assert [(each.members, each.weight) for each in found.contributions] == [(("aachen",), 5.0)]
    assert found.refused == (("aachen", "second_answer"), ("dresden", "unknown_member"))


def test_the_largest_epsilon_counts_and_every_accountant_is_named():
    round_ = PlainRound(CALL, ROSTER)
    for name, spent in zip(ROSTER, (SPENT, Spent(epsilon=0.5, accountant="opacus 1.5.4")), strict=True):
        answer = Contribution(members=(name,), weight=5.0, change=WEIGHTS, loss=0.25)
        round_.received(name, answer_payload(CALL, answer, spent=spent))
    assert round_.answers().spent == Spent(epsilon=1.5, accountant="opacus 1.5.4, opacus 1.6.0")


@pytest.mark.parametrize(
    "spent", [{"epsilon": 1.5, "accountant": "x" * 10**5}, {"epsilon": float("nan"), "accountant": "x"}, 1.5]
)
def test_a_wild_account_is_refused(spent):
    given = payload()
    answer = json.loads(given["answer"]) | {"spent": spent}
    assert reason_of(given | {"answer": json.dumps(answer).encode()}) == "shape"


def test_a_member_says_in_one_word_why_it_does_not_answer():
    assert reason_of(refused_payload("budget")) == "budget"
    assert reason_of({"refused": "because of /srv/cohort"}) == "error"


def test_a_judgement_has_no_change():
    judged = RoundCall(number=5, attempt=1, trains=False, weights=WEIGHTS, seconds=9.0)
    answer = Contribution(members=("aachen",), weight=5.0, change=None, loss=None, metrics={})
    given = answer_payload(judged, answer, spent=None)
    assert read_answer(given, judged, "aachen", ROSTER).contributions
    assert read_answer(payload(call=judged), judged, "aachen", ROSTER).refused == (("aachen", "old_round"),)


def test_a_call_of_another_form_is_refused():
    decoded = json.loads(call_payload(CALL)["call"])
    for broken in ({"call": b"{}"}, {"weights": pickle.dumps(WEIGHTS)}, {"call": decoded}):
        with pytest.raises(IntegrityError):
            read_call(call_payload(CALL) | broken)
