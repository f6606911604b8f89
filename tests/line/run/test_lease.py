"""Leases: one driver at a time, tokens that grow, and a killed driver that is replaced at once."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from gangline.errors import CapacityError
from gangline.line.run import lease
from gangline.spec.codec import canonical
from gangline.storage.folder.store import FolderStore

PREFIX = "runs/cheap/abc/cheap-9f31c2a0-k7q2mx"


@pytest.fixture
def store(tmp_path):
    return FolderStore(tmp_path)


def take(store, at_least=0):
    return lease.acquire_lease(store, PREFIX, holder=lease.this_process(), at_least=at_least)


def test_a_second_driver_is_sent_to_follow_the_first(store):
    take(store)
    with pytest.raises(CapacityError, match="gangline follow cheap-9f31c2a0-k7q2mx"):
        take(store)


def test_of_sixteen_that_want_it_one_gets_it(store):
    def attempt(_):
        try:
            return take(store)
        except CapacityError:
            return None

    with ThreadPoolExecutor(16) as pool:
        won = [each for each in pool.map(attempt, range(16)) if each]
    assert len(won) == 1


def test_tokens_grow_over_release_and_over_what_the_record_says(store):
    first = take(store)
    lease.release_lease(store, PREFIX, first)
    second = take(store)
    lease.release_lease(store, PREFIX, second)
    third = take(store, at_least=7)
    assert (first.token, second.token, third.token) == (1, 2, 8)


def test_a_killed_driver_of_this_machine_is_replaced_at_once(store):
    code = "from gangline.line.run import lease; print(lease.this_process())"
    dead = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    lease.acquire_lease(store, PREFIX, holder=dead, at_least=0)
    assert not lease.is_held(lease.read_lease(store, PREFIX), now=time.time())
    assert take(store).token == 2


def test_a_killed_driver_is_replaced_before_its_parent_has_looked(store):
    code = "from gangline.line.run import lease; print(lease.this_process(), flush=True); input()"
    driver = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with driver:
        taken = lease.acquire_lease(store, PREFIX, holder=driver.stdout.readline().strip(), at_least=0)
        assert lease.is_held(taken, now=time.time())
        driver.kill()
        deadline = time.monotonic() + 30
        while lease.is_held(taken, now=time.time()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert driver.returncode is None


def test_a_driver_elsewhere_is_waited_for_until_its_lease_ends(store):
    now = time.time()
    elsewhere = lease.Lease(holder="far:otherbox:12:34:abc", token=4, expires=now + 60)
    store.put(f"{PREFIX}/lease.json", canonical(elsewhere))
    with pytest.raises(CapacityError, match="on far"):
        take(store)
    assert lease.is_held(elsewhere, now=now + 59)
    assert not lease.is_held(elsewhere, now=now + 61)


def test_a_lease_is_renewed_while_its_driver_works_and_let_go_after(store, monkeypatch):
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.02)
    mine = take(store)
    troubles = []
    with lease.renewed_lease(store, PREFIX, mine, on_problem=troubles.append):
        deadline = time.monotonic() + 30
        while lease.read_lease(store, PREFIX).expires <= mine.expires and time.monotonic() < deadline:
            time.sleep(0.01)
        assert lease.read_lease(store, PREFIX).expires > mine.expires
    released = lease.read_lease(store, PREFIX)
    assert (released.holder, released.token) == ("", 1)
    assert mine.expires - lease.LEASE_SECONDS <= released.expires <= time.time()
    assert troubles == []


def test_a_lease_that_was_taken_over_is_left_alone(store, monkeypatch):
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.02)
    mine = take(store)
    theirs = lease.Lease(holder="far:otherbox:12:34:abc", token=9, expires=time.time() + 60)
    troubles = []
    with lease.renewed_lease(store, PREFIX, mine, on_problem=troubles.append):
        store.put(f"{PREFIX}/lease.json", canonical(theirs))
        deadline = time.monotonic() + 30
        while not troubles and time.monotonic() < deadline:
            time.sleep(0.01)
    assert lease.read_lease(store, PREFIX) == theirs
    assert "another driver" in troubles[0]
