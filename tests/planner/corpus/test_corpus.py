"""Equal answers: a change of the planner's code that changes what it says is seen here and read before it is wanted."""

import json

import pytest
from tests.planner.corpus.answers import DIGESTS, answer, digest_of
from tests.planner.corpus.questions import Question, questions

SAMPLE = {"R1", "h100:64", "muon", *(f"drawn {number}" for number in range(3, 200, 12))}
"""Questions of the default suite, in addition to all examples."""


def changed(asked: list[Question]) -> str:
    """Names of questions whose answers are others than those that were written down, and how to read them."""
    known = json.loads(DIGESTS.read_text("utf-8"))
    names = [each.name for each in asked if known.get(each.name) != digest_of(answer(each))]
    return f"{', '.join(names)}: see tests/planner/corpus/answers.py" if names else ""


def test_the_planner_answers_a_sample_as_it_did():
    assert not changed([each for each in questions() if each.name in SAMPLE or " on " in each.name])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_planner_answers_all_questions_as_it_did():
    asked = list(questions())
    assert {each.name for each in asked} == set(json.loads(DIGESTS.read_text("utf-8")))
    assert not changed(asked)


def test_another_number_is_another_answer_and_the_last_digit_of_a_float_is_not():
    assert digest_of("step 0.25 s") != digest_of("step 0.26 s")
    assert digest_of("0.30000000000000004") == digest_of("0.3")
