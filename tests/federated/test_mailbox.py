"""Rounds between two processes that share a folder."""

import threading
import time

import numpy as np
import pytest

from gangline.errors import CapacityError, IntegrityError
from gangline.federated.mailbox import Mailbox, MailboxMembers
from gangline.federated.protocol import (
    Acceptance,
    Contribution,
    RoundAnswers,
    RoundCall,
    most_bytes,
    pack_tensors,
    unpack_tensors,
)

WEIGHTS = {"b": np.arange(6, dtype=np.float32).reshape(2, 3), "a": np.float32(3.5) * np.ones((), np.float32)}


def call(number=1, attempt=1, **changed):
    given = {"trains": True, "weights": WEIGHTS, "seconds": 5.0} | changed
    return RoundCall(number=number, attempt=attempt, **given)


def answers_of(found, *, value=1.0):
    change = {name: np.full_like(each, value) for name, each in found.weights.items()}
    part = Contribution(members=("aachen",), weight=3.0, change=change, loss=0.5, metrics={"acc": (2.0, 4.0)})
    return RoundAnswers(contributions=(part,), refused=(("bremen", "not_finite"),), bytes_up=7, bytes_down=9)


class Asking(threading.Thread):
    """A call that is asked in another thread."""

    def __init__(self, folder, asked):
        super().__init__(daemon=True)
        self.members, self.asked, self.found = MailboxMembers(folder, poll_seconds=0.01), asked, None
        self.start()

    def run(self):
        try:
            self.found = self.members.ask(self.asked)
        except Exception as error:
            self.found = error


def taken(box):
    while (found := box.next_call()) is None:
        pass
    return found


def test_tensors_come_back_as_they_were():
    data = pack_tensors(WEIGHTS)
    assert len(data) <= most_bytes(WEIGHTS)
    found = unpack_tensors(data)
    assert found.keys() == WEIGHTS.keys()
    assert all(np.array_equal(found[name], WEIGHTS[name]) for name in WEIGHTS)


def test_a_call_is_taken_once_and_its_answers_come_back_whole(tmp_path):
    asking, box = Asking(tmp_path, call()), Mailbox(tmp_path)
    found = taken(box)
    assert (found.number, found.attempt, found.trains, found.seconds) == (1, 1, True, 5.0)
    box.answer(found, answers_of(found))
    asking.join(10)
    assert box.next_call() is None
    part = asking.found.contributions[0]
    assert (part.members, part.weight, part.loss, part.metrics) == (("aachen",), 3.0, 0.5, {"acc": (2.0, 4.0)})
    assert np.array_equal(part.change["b"], np.ones((2, 3), np.float32))
    assert asking.found.refused == (("bremen", "not_finite"),)


def test_a_rank_that_begins_again_gets_the_same_answers_for_the_same_weights_only(tmp_path):
    asking, box = Asking(tmp_path, call()), Mailbox(tmp_path)
    found = taken(box)
    box.answer(found, answers_of(found))
    asking.join(10)
    again = MailboxMembers(tmp_path).ask(call())
    assert again.contributions[0].weight == 3.0
    other = Asking(tmp_path, call(weights={"b": WEIGHTS["b"] + 1, "a": WEIGHTS["a"]}))
    found = taken(box)
    box.answer(found, answers_of(found, value=2.0))
    other.join(10)
    assert other.found.contributions[0].change["b"][0, 0] == 2.0


def test_an_error_is_raised_where_it_was_asked(tmp_path):
    asking, box = Asking(tmp_path, call()), Mailbox(tmp_path)
    box.fail(taken(box), CapacityError("wanted 2 members, found 1"))
    asking.join(10)
    assert isinstance(asking.found, CapacityError)
    assert "found 1" in str(asking.found)


def test_a_link_in_place_of_a_file_or_a_folder_is_refused(tmp_path):
    secret = tmp_path / "secret.safetensors"
    secret.write_bytes(pack_tensors(WEIGHTS))
    box, shared = Mailbox(tmp_path / "shared"), tmp_path / "shared"
    shared.mkdir()
    asking = Asking(shared, call())
    found = taken(box)
    box.answer(found, answers_of(found))
    asking.join(10)
    file = next((shared / "answers").glob("*.0.safetensors"))
    file.unlink()
    file.symlink_to(secret)
    with pytest.raises(IntegrityError, match="wanted a file"):
        MailboxMembers(shared).ask(call())
    (shared / "calls").rename(tmp_path / "calls")
    (shared / "calls").symlink_to(tmp_path / "calls")
    with pytest.raises(IntegrityError, match="wanted a folder"):
        box.next_call()
    other = tmp_path / "other"
    other.mkdir()
    shared.rename(tmp_path / "was")
    shared.symlink_to(other)
    with pytest.raises(IntegrityError, match="wanted a folder"):
        MailboxMembers(shared).close()
    assert not list(other.iterdir())


def test_a_change_that_is_larger_than_the_model_is_not_read(tmp_path):
    asking, box = Asking(tmp_path, call()), Mailbox(tmp_path)
    found = taken(box)
    part = Contribution(members=("a",), weight=1.0, change={"b": np.zeros(50_000, np.float32)}, loss=None)
    box.answer(found, RoundAnswers(contributions=(part,)))
    asking.join(10)
    assert isinstance(asking.found, IntegrityError)
    assert "at most" in str(asking.found)


def test_only_arrays_of_floats_are_tensors():
    import pickle

    for data in (b"", pickle.dumps(WEIGHTS), pack_tensors(WEIGHTS)[:-1], pack_tensors(WEIGHTS) + b"\0"):
        with pytest.raises(IntegrityError):
            unpack_tensors(data)
    with pytest.raises(IntegrityError, match="F32 alone"):
        unpack_tensors(pack_tensors(WEIGHTS).replace(b'"F32"', b'"I32"'))


def test_the_end_is_seen(tmp_path):
    box = Mailbox(tmp_path)
    assert not box.is_closed
    MailboxMembers(tmp_path).close()
    assert box.is_closed
    assert box.next_call() is None


def test_a_call_that_waits_hears_who_takes_part_once_for_each_change(tmp_path):
    heard, box = [], Mailbox(tmp_path)
    asking = threading.Thread(
        target=MailboxMembers(tmp_path, on_acceptance=heard.append, poll_seconds=0.01).ask, args=(call(),), daemon=True
    )
    asking.start()
    found = taken(box)
    two = [Acceptance(accepted=count, missing=("leipzig: not connected",)) for count in (1, 2)]
    for each in (two[0], two[0], two[1]):
        box.tell(each)
        deadline = time.monotonic() + 10
        while heard[-1:] != [each]:
            assert time.monotonic() < deadline, heard
            time.sleep(0.01)
    box.answer(found, answers_of(found))
    asking.join(10)
    assert heard == two
