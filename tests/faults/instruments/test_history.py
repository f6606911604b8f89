"""The history checker itself: planted lies must be rejected, truth accepted; and against a slow oracle."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.faults.instruments.history import Call, _apply, check


def call(operation, value, begin, end=None, outcome="ok", expected=None, worker=0, key="k"):
    times = {} if end is None else {"end": float(end)}
    return Call(
        worker=worker,
        operation=operation,
        key=key,
        begin=float(begin),
        outcome=outcome,
        value=value,
        expected=expected,
        **times,
    )


TRUE = {
    "one after the other": [call("create", b"a", 0, 1), call("read", b"a", 2, 3)],
    "overlapping reads see either": [
        call("put", b"a", 0, 10),
        call("read", None, 1, 2, worker=1),
        call("read", b"a", 3, 4, worker=2),
    ],
    "one winner of two": [call("create", b"a", 0, 5), call("create", b"b", 0, 5, "fail", worker=1)],
    "unknown that happened": [call("put", b"a", 0, outcome="unknown"), call("read", b"a", 5, 6)],
    "unknown that did not": [call("put", b"a", 0, outcome="unknown"), call("read", None, 5, 6)],
    "unknown that happened late": [
        call("put", b"a", 0, outcome="unknown"),
        call("read", None, 5, 6),
        call("read", b"a", 7, 8),
    ],
    "a write of what stood there, needed later": [
        call("put", b"a", 0, 1),
        call("put", b"a", 0, 9, worker=1),
        call("put", b"b", 2, 3),
        call("read", b"b", 4, 5),
        call("read", b"a", 6, 7),
    ],
    "keys do not touch": [call("put", b"a", 0, 1, key="x"), call("read", None, 2, 3, key="y")],
    "swap chain": [
        call("create", b"a", 0, 1),
        call("swap", b"b", 2, 5, expected=b"a"),
        call("swap", b"c", 2, 5, "fail", expected=b"a", worker=1),
        call("read", b"b", 6, 7),
    ],
}
FALSE = {
    "a lost acknowledgement": [call("put", b"a", 0, 1), call("read", None, 2, 3)],
    "two winners": [call("create", b"a", 0, 5), call("create", b"b", 0, 5, worker=1)],
    "two winners of a swap": [
        call("create", b"a", 0, 1),
        call("swap", b"b", 2, 5, expected=b"a"),
        call("swap", b"c", 2, 5, expected=b"a", worker=1),
    ],
    "a stale read": [
        call("put", b"a", 0, 1),
        call("put", b"b", 2, 3),
        call("read", b"b", 4, 5),
        call("read", b"a", 6, 7, worker=1),
    ],
    "a late write": [
        call("put", b"a", 0, 1),
        call("put", b"b", 2, 3, worker=1),
        call("read", b"b", 4, 5),
        call("read", b"a", 6, 7),
    ],
    "a refusal without cause": [call("create", b"a", 0, 1, "fail"), call("read", None, 2, 3)],
    "a failed write that is read": [
        call("create", b"a", 0, 1),
        call("swap", b"b", 2, 3, "fail", expected=b"a"),
        call("read", b"b", 4, 5),
    ],
    "an unknown that happened twice": [
        call("put", b"a", 0, outcome="unknown"),
        call("read", b"a", 1, 2),
        call("put", b"b", 3, 4),
        call("read", b"a", 5, 6),
    ],
}


@pytest.mark.parametrize("history", TRUE.values(), ids=TRUE)
def test_true_history_is_accepted(history):
    assert check(history) is None


@pytest.mark.parametrize("history", FALSE.values(), ids=FALSE)
def test_planted_lie_is_rejected(history):
    assert "no order explains" in check(history)


def test_rejection_names_key_and_calls():
    history = [call("put", b"a", 0, 1, key="version", worker=7), call("read", None, 2, 3, key="version")]
    assert check(history) == "key version: no order explains\n  worker 0 read None: ok"


values = st.sampled_from([None, b"a", b"b"])
calls = st.builds(
    lambda operation, value, expected, begin, length, outcome: call(
        operation,
        value if operation == "read" else value or b"c",
        begin,
        None if outcome == "unknown" else begin + length,
        "ok" if operation in ("read", "put") and outcome == "fail" else outcome,
        expected,
    ),
    st.sampled_from(["read", "put", "create", "swap"]),
    values,
    values,
    st.integers(0, 6),
    st.integers(0, 6),
    st.sampled_from(["ok", "ok", "fail", "unknown"]),
)


@given(st.lists(calls, max_size=5))
def test_search_agrees_with_trying_every_order(history):
    assert (check(history) is None) == _some_order_explains(history)


def _some_order_explains(history):
    answered = [each for each in history if each.outcome != "unknown"]
    unknown = [each for each in history if each.outcome == "unknown"]
    for subset in range(1 << len(unknown)):
        chosen = answered + [each for i, each in enumerate(unknown) if subset >> i & 1]
        if any(_explains(order) for order in permutations(chosen)):
            return True
    return False


def _explains(order):
    register = None
    for i, each in enumerate(order):
        fits, register = _apply(each, register)
        if not fits or any(later.end < each.begin for later in order[i + 1 :]):
            return False
    return True
