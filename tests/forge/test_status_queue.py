"""The thread between a run and its forge: newest word per slot, urgent ones at once, trouble as sentences."""

import threading
import time

import pytest

from gangline.errors import ConfigError, StorageError
from gangline.forge.protocol import CommitStatus
from gangline.forge.status_queue import StatusQueue


def update(words, state="pending"):
    return CommitStatus(context="gangline/train", state=state, description=words)


class Box:
    """Takes updates; slow or broken on demand."""

    def __init__(self):
        self.taken, self.errors = [], []
        self.opened = threading.Event()
        self.opened.set()
        self.asked = threading.Event()

    def __call__(self, status):
        self.asked.set()
        self.opened.wait(10)
        if self.errors:
            raise self.errors.pop(0)
        self.taken.append(status.description)

    def await_taken(self, count):
        deadline = time.monotonic() + 10
        while len(self.taken) < count:
            assert time.monotonic() < deadline, self.taken
            time.sleep(0.005)


@pytest.fixture
def box():
    return Box()


def errors_of(status_queue):
    found = []
    while not status_queue.errors.empty():
        found.append(status_queue.errors.get())
    return found


def test_words_that_only_move_wait_for_their_minute_and_the_newest_goes(box):
    status_queue = StatusQueue(box, interval=3600)
    status_queue.put("train", update("step 1"), urgent=True)
    box.await_taken(1)
    for step in range(2, 1000):
        status_queue.put("train", update(f"step {step}"), urgent=False)
    time.sleep(0.05)
    assert box.taken == ["step 1"]
    status_queue.close(seconds=5)
    assert box.taken == ["step 1", "step 999"]


def test_moving_words_go_out_once_an_interval(box):
    status_queue = StatusQueue(box, interval=0.2)
    began = time.monotonic()
    for step in range(100):
        status_queue.put("train", update(f"step {step}"), urgent=False)
        time.sleep(0.01)
    status_queue.close(seconds=5)
    assert 2 <= len(box.taken) <= (time.monotonic() - began) / 0.2 + 2
    assert box.taken[-1] == "step 99"


def test_a_change_of_state_does_not_wait(box):
    status_queue = StatusQueue(box, interval=3600)
    status_queue.put("train", update("step 1"), urgent=True)
    box.await_taken(1)
    status_queue.put("train", update("done", "success"), urgent=True)
    box.await_taken(2)
    assert box.taken == ["step 1", "done"], "before the minute between two updates was over, and before the end"
    status_queue.close(seconds=5)


def test_handing_in_never_waits_for_a_slow_forge(box):
    status_queue = StatusQueue(box, interval=0.01)
    box.opened.clear()
    status_queue.put("train", update("first"), urgent=True)
    assert box.asked.wait(5)
    began = time.monotonic()
    for step in range(1000):
        status_queue.put("train", update(f"{step}"), urgent=True)
    assert time.monotonic() - began < 60, "the forge takes nothing until it is opened again"
    box.opened.set()
    status_queue.close(seconds=5)
    assert (box.taken[0], box.taken[-1], len(box.taken)) == ("first", "999", 2)


def test_a_forge_that_is_away_is_tried_once_more_at_the_end_and_said_once(box):
    box.errors = [StorageError("away")]
    status_queue = StatusQueue(box, interval=3600)
    status_queue.put("train", update("done"), urgent=True)
    while status_queue.errors.empty():
        time.sleep(0.005)
    status_queue.close(seconds=5)
    assert (box.taken, errors_of(status_queue)) == (["done"], ["away"])


def test_a_forge_that_is_away_at_the_end_is_asked_once_for_all_that_is_left(box):
    box.errors = [StorageError("away")] * 9
    status_queue = StatusQueue(box, interval=3600)
    for slot in ("build", "train", "gate"):
        status_queue.put(slot, update(slot), urgent=True)
    status_queue.close(seconds=5)
    assert len(box.errors) >= 7
    assert set(errors_of(status_queue)) == {"away"}


def test_a_forge_that_stays_away_holds_the_end_up_no_longer_than_it_may(box):
    status_queue = StatusQueue(box, interval=3600)
    box.opened.clear()
    status_queue.put("train", update("done"), urgent=True)
    assert box.asked.wait(5)
    began = time.monotonic()
    status_queue.close(seconds=0.2)
    assert time.monotonic() - began < 5
    assert "did not accept the last status" in errors_of(status_queue)[0]
    box.opened.set()


def test_what_a_forge_refuses_is_not_asked_again_and_the_rest_is(box):
    box.errors = [ConfigError("your token may not")]
    status_queue = StatusQueue(box, interval=0.01)
    status_queue.put("comment", update("refused"), urgent=True)
    deadline = time.monotonic() + 10
    while box.errors and time.monotonic() < deadline:
        time.sleep(0.005)
    status_queue.put("comment", update("again"), urgent=True)
    status_queue.put("train", update("done"), urgent=True)
    status_queue.close(seconds=5)
    assert (box.taken, errors_of(status_queue)) == (["done"], ["your token may not"])


def test_a_bug_is_a_sentence_and_the_thread_continues(box):
    box.errors = [KeyError("x")]
    status_queue = StatusQueue(box, interval=0.01)
    status_queue.put("comment", update("breaks"), urgent=True)
    status_queue.put("train", update("done"), urgent=True)
    status_queue.close(seconds=5)
    assert (box.taken, errors_of(status_queue)) == (["done"], ["KeyError: 'x'"])


def test_a_withdrawn_slot_is_silent_once_withdraw_returns(box):
    status_queue = StatusQueue(box, interval=0.01)
    box.opened.clear()
    status_queue.put("comment", update("on its way"), urgent=True)
    assert box.asked.wait(5)
    threading.Timer(0.1, box.opened.set).start()
    status_queue.withdraw("comment", seconds=5)
    assert box.taken == ["on its way"]
    status_queue.put("comment", update("late"), urgent=True)
    status_queue.close(seconds=5)
    assert box.taken == ["on its way"]
