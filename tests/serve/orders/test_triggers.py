"""What triggers let through, and what becomes of an order by its driver's exit code."""

from dataclasses import replace

import pytest
from tests.line.records import record

from gangline.serve.database.types import Order
from gangline.serve.orders.retry_policy import MOST_TRIES, RETRY_SECONDS, after_exit, after_failure, after_run
from gangline.serve.orders.triggers import trigger_refusal
from gangline.spec.config.line import TriggerTable

ORDER = Order(id=1, project="cheap", ref="refs/heads/main", state="driving")
OWN = {"branch": "main", "changed": None}


@pytest.mark.parametrize(
    ("trigger", "order", "found", "said"),
    [
        ({}, {}, {}, None),
        ({"branches": ("main", "release/*")}, {}, {"branch": "release/1"}, None),
        ({"branches": ("main", "release/*")}, {}, {"branch": "topic"}, "trigger.branches"),
        ({"branches": ("main",)}, {"cause": "api"}, {"branch": "topic"}, None),
        ({"paths": ("src/**",)}, {}, {"changed": ["src/a.py", "README.md"]}, None),
        ({"paths": ("src/**",)}, {}, {"changed": ["README.md"]}, "trigger.paths"),
        ({"paths": ("src/**",)}, {}, {"changed": []}, "trigger.paths"),
        ({"paths": ("src/**",)}, {}, {"changed": None}, None),
        ({"paths": ("src/**",)}, {"cause": "schedule"}, {"changed": ["README.md"]}, None),
        ({"forks": "off"}, {}, {"is_fork": True}, "trigger.forks"),
        ({"forks": "off"}, {"cause": "api"}, {"is_fork": True}, "trigger.forks"),
        ({"forks": "approve"}, {}, {"is_fork": True}, None),
        ({}, {"cause": "sweep"}, {"commit_age_seconds": 86_401.0}, "older than a day"),
        ({}, {"cause": "sweep"}, {"commit_age_seconds": 3600.0}, None),
        ({}, {"cause": "push"}, {"commit_age_seconds": 1e9}, None),
    ],
)
def test_a_commit_starts_a_run_or_is_shown_why_not(trigger, order, found, said):
    answer = trigger_refusal(replace(ORDER, **order), TriggerTable(**trigger), **OWN | found)
    assert answer is None if said is None else said in answer


@pytest.mark.parametrize(
    ("code", "state", "tries"),
    [
        (0, "done", 0), (2, "done", 0), (10, "done", 0), (30, "done", 0), (34, "done", 0), (50, "done", 0),
        (60, "done", 0), (70, "done", 0), (20, "parked", 0), (75, "parked", 0), (40, "parked", 1), (1, "parked", 1),
        (-9, "parked", 1), (137, "parked", 1), (143, "parked", 1),
    ],
)  # fmt: skip
def test_every_exit_code_has_one_meaning(code, state, tries):
    order = after_exit(ORDER, code, record=None, last_message="it said so", now=1000.0)
    assert (order.state, order.tries) == (state, tries)
    assert (order.not_before > 1000.0) == (state == "parked")


def test_an_order_is_put_aside_after_its_last_try():
    order = ORDER
    for patience in RETRY_SECONDS:
        order = after_failure(order, "away", now=1000.0)
        assert (order.state, order.not_before) == ("parked", 1000.0 + patience)
    order = after_failure(order, "away", now=1000.0)
    assert (order.state, order.tries) == ("quarantined", MOST_TRIES)
    assert order.note.endswith("away")


def test_a_run_that_ended_speaks_for_itself():
    ended = record()
    ended = replace(ended, run=replace(ended.run, state="ended", verdict="refused", reason="worse", exit_code=60))
    assert after_run(ORDER, ended).note == "refused: worse"


@pytest.mark.row("P5")
def test_a_fork_waits_for_a_person_and_not_for_a_clock():
    fork = record()
    fork = replace(fork, commit=replace(fork.commit, trust="fork"))
    order = after_exit(ORDER, 20, record=fork, last_message="", now=1000.0)
    assert order.not_before > 1000.0 + 86_400 * 365
    assert "gangline approve" in order.note
