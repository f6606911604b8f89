"""Saving beside training: never in its way, never two at once, never silent."""

import math
import sys
import threading
import time

import pytest
import torch
from tests.checkpoint.small import KEY, PREFIX, Wrapped, saver, step, trained

from gangline.checkpoint.format.commit import Latest, StaleGeneration, claim, read_latest
from gangline.checkpoint.format.manifest import list_checkpoints
from gangline.checkpoint.format.stored_tensors import stored_digests
from gangline.checkpoint.host_tensors import Staging
from gangline.checkpoint.pending_save import SaveWriter
from gangline.checkpoint.state import tensor_digests
from gangline.errors import ConfigError, LostPeerError, StorageError


class Gated(Wrapped):
    """Holds every write of a shard until the gate opens."""

    def __init__(self, store):
        super().__init__(store)
        self.gate = threading.Event()

    def put(self, key, data):
        if key.endswith(".safetensors"):
            assert self.gate.wait(60)
        return self._store.put(key, data)


class Full(Wrapped):
    """Refuses writes while `full`."""

    full = True
    refused = 0

    def put(self, key, data):
        if self.full:
            self.refused += 1
            raise StorageError(f"no space left for {key}; free some")
        return self._store.put(key, data)


def steps(store):
    return [found.step for found in list_checkpoints(store, PREFIX)]


def test_save_returns_before_it_is_durable_and_keeps_what_was_staged(store):
    slow = Gated(store)
    model, optimizer = trained()
    wanted = tensor_digests(model, optimizer)
    made = saver(slow)
    report = made.save(model, optimizer, {}, step=1, wait=False)
    assert (report.seconds, report.error, steps(store)) == (0.0, None, [])
    step(model, optimizer)
    assert tensor_digests(model, optimizer) != wanted
    assert made.poll() == []
    slow.gate.set()
    [finished] = made.wait()
    assert (finished.step, finished.key, finished.error) == (1, report.key, None)
    assert finished.blocking_seconds == report.blocking_seconds < finished.seconds
    assert finished.size_bytes == sum(
        entry.size_bytes for entry in store.list(report.key) if "manifest" not in entry.key
    )
    assert stored_digests(store, report.key, KEY, optimizer=True) == wanted


@pytest.fixture
def busy_writing(monkeypatch):
    """Writing begins with a second of Python, in which other threads get no turn unless they have it already."""
    before, write = sys.getswitchinterval(), SaveWriter.write

    def spin_and_write(self, flight):
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            pass
        return write(self, flight)

    monkeypatch.setattr(SaveWriter, "write", spin_and_write)
    sys.setswitchinterval(30.0)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("busy_writing")
def test_save_whose_writing_begins_with_much_python_returns_before_it(store):
    model, optimizer = trained()
    made = saver(store)
    report = made.save(model, optimizer, {}, step=1, wait=False)
    [finished] = made.wait()
    assert report.blocking_seconds < 0.5 < 1.0 <= finished.seconds


def test_what_a_save_blocks_counts_the_start_of_its_thread(store, monkeypatch):
    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda self: (time.sleep(0.2), start(self)))
    model, optimizer = trained()
    made = saver(store)
    report = made.save(model, optimizer, {}, step=1, wait=False)
    [finished] = made.wait()
    assert finished.blocking_seconds == report.blocking_seconds >= 0.2


def test_periodic_save_that_meets_one_in_flight_is_skipped_and_counted(store):
    slow = Gated(store)
    model, optimizer = trained()
    made = saver(slow)
    assert made.save(model, optimizer, {}, step=1, wait=False)
    assert made.save(model, optimizer, {}, step=2, wait=False) is None
    assert made.save(model, optimizer, {}, step=3, wait=False) is None
    assert made.skipped == 2
    slow.gate.set()
    made.wait()
    assert made.save(model, optimizer, {}, step=4, wait=False)
    made.close()
    assert steps(store) == [4, 1]


def test_final_save_waits_for_the_one_in_flight(store):
    slow = Gated(store)
    model, optimizer = trained()
    made = saver(slow)
    made.save(model, optimizer, {}, step=1, wait=False)
    threading.Timer(0.2, slow.gate.set).start()
    final = made.save(model, optimizer, {}, step=2, wait=True)
    assert (final.step, steps(store)) == (2, [2, 1])
    assert [report.step for report in made.poll()] == [1]


def test_same_step_is_saved_once(store):
    model, optimizer = trained()
    made = saver(store)
    made.save(model, optimizer, {}, step=1, wait=False)
    again = made.save(model, optimizer, {}, step=1, wait=True)
    assert (again.step, made.poll()) == (1, [])
    assert made.save(model, optimizer, {}, step=1, wait=True) == again


def test_failed_save_is_reported_and_the_next_one_works(store):
    full = Full(store)
    model, optimizer = trained()
    made = saver(full)
    made.save(model, optimizer, {}, step=1, wait=False)
    [failed] = made.wait()
    assert failed.step == 1
    assert "no space left" in failed.error
    assert steps(store) == []
    full.full = False
    made.save(model, optimizer, {}, step=2, wait=False)
    assert [report.error for report in made.wait()] == [None]
    assert steps(store) == [2]


def test_saving_that_fails_for_too_long_stops_training(store):
    model, optimizer = trained()
    made = saver(Full(store), max_unsaved_seconds=0.0)
    made.save(model, optimizer, {}, step=1, wait=False)
    assert made.wait()[0].error
    with pytest.raises(StorageError, match="no checkpoint could be written"):
        made.save(model, optimizer, {}, step=2, wait=False)


def test_rare_saves_that_work_are_never_overdue(store):
    model, optimizer = trained()
    made = saver(store, max_unsaved_seconds=0.0)
    for number in (1, 2):
        made.save(model, optimizer, {}, step=number, wait=False)
        assert made.wait()[0].error is None


def test_waiting_save_tries_again_until_the_store_is_back(store):
    full = Full(store)
    model, optimizer = trained()
    wanted = tensor_digests(model, optimizer)
    threading.Timer(0.3, lambda: setattr(full, "full", False)).start()
    report = saver(full).save(model, optimizer, {}, step=1, wait=True)
    assert (report.error, full.refused > 0) == (None, True)
    assert stored_digests(store, report.key, KEY, optimizer=True) == wanted


def test_waiting_save_gives_up_after_its_patience(store):
    model, optimizer = trained()
    started = time.monotonic()
    with pytest.raises(StorageError, match=r"step-00000001 could not be written: .*no space left"):
        saver(Full(store), retry_seconds=0.5).save(model, optimizer, {}, step=1, wait=True)
    assert time.monotonic() - started < 30
    assert steps(store) == []


def test_stale_generation_writes_nothing_and_stops(store):
    claim(store, PREFIX, 2)
    model, optimizer = trained()
    with pytest.raises(StaleGeneration, match="generation 2 writes"):
        saver(store, generation=1).save(model, optimizer, {}, step=1, wait=True)
    assert [entry.key for entry in store.list(PREFIX)] == [f"{PREFIX}/latest.json"]


def test_first_save_of_a_generation_fences_the_older_one_off(store):
    model, optimizer = trained()
    old, new = saver(store, generation=1), saver(store, generation=2)
    old.save(model, optimizer, {}, step=1, wait=True)
    new.save(model, optimizer, {}, step=2, wait=True)
    old.save(model, optimizer, {}, step=3, wait=False)
    with pytest.raises(StaleGeneration):
        old.wait()
    assert (steps(store), read_latest(store, PREFIX)) == ([2, 1], Latest(step=2, generation=2))


def test_newer_generation_saves_a_step_again_under_names_of_its_own(store):
    model, optimizer = trained()
    first = saver(store, generation=1).save(model, optimizer, {}, step=1, wait=True)
    old = {entry.key for entry in store.list(f"{first.key}/g0001")}
    written = []

    class Watched(Wrapped):
        def put(self, key, data):
            written.append(key)
            return self._store.put(key, data)

    step(model, optimizer)
    saver(Watched(store), generation=2).save(model, optimizer, {}, step=1, wait=True)
    assert written
    assert not old & set(written)
    assert read_latest(store, PREFIX) == Latest(step=1, generation=2)
    assert stored_digests(store, first.key, KEY, optimizer=True) == tensor_digests(model, optimizer)


def test_older_checkpoints_go_and_trouble_with_that_is_a_note(store):
    class Undeletable(Wrapped):
        def delete(self, key):
            raise StorageError("read-only for deletes")

    model, optimizer = trained()
    kept = saver(store, keep=2)
    for number in (1, 2, 3):
        kept.save(model, optimizer, {}, step=number, wait=True)
    assert steps(store) == [3, 2]
    report = saver(Undeletable(store), keep=1, generation=2).save(model, optimizer, {}, step=4, wait=True)
    assert (report.error, steps(store)) == (None, [4, 3, 2])
    assert report.note == "older checkpoints could not be deleted: read-only for deletes"


def test_first_save_of_a_generation_clears_what_the_last_one_left_unfinished(store):
    model, optimizer = trained()
    store.put(f"{PREFIX}/step-00000007/g0001-r00000-0.safetensors", b"killed before its manifest")
    report = saver(store, generation=2).save(model, optimizer, {}, step=1, wait=True)
    assert {entry.key.rpartition("/")[0] for entry in store.list(f"{PREFIX}/step-")} == {report.key}


@pytest.mark.parametrize("numbers", [{"x": math.nan}, {"x": object()}, {"x": b"bytes"}])
def test_numbers_that_are_no_json_are_refused_before_anything_is_written(store, numbers):
    with pytest.raises(ConfigError, match="JSON data with finite floats"):
        saver(store).save(*trained(), numbers, step=1, wait=True)
    assert store.list(PREFIX) == []


def test_failure_that_is_not_a_store_trouble_is_raised_on_the_training_thread(store):
    class Buggy(Wrapped):
        def put(self, key, data):
            raise ZeroDivisionError("a bug")

    made = saver(Buggy(store))
    made.save(*trained(), {}, step=1, wait=False)
    with pytest.raises(Exception, match="ZeroDivisionError: a bug") as caught:
        made.wait()
    assert type(caught.value).__name__ == "TrainingError"
    assert not isinstance(caught.value, (StorageError, LostPeerError))


def test_staging_buffers_are_reused_from_save_to_save():
    staging = Staging()
    tensors = {"a": torch.randn(5), "b": torch.randn(2, 3)}
    first = staging.copy(tensors)
    places = {name: staged.local.data_ptr() for name, staged in first.items()}
    for _ in range(3):
        again = staging.copy({name: tensor + 1 for name, tensor in tensors.items()})
        assert {name: staged.local.data_ptr() for name, staged in again.items()} == places
    assert torch.equal(again["a"].local, tensors["a"] + 1)
    assert staging.size_bytes == 4 * 11
    staging.copy({"a": torch.randn(7)})
    assert staging.size_bytes == 4 * 7


def test_optimizer_without_state_is_left_as_it_is(store):
    model, optimizer = trained(steps=0)
    report = saver(store).save(model, optimizer, {}, step=1, wait=True)
    assert not optimizer.state
    assert all(name.startswith("model/") for name in stored_digests(store, report.key, KEY, optimizer=True))
