"""N2: answers come 100 to 500 ms late and some are lost: every call comes to its end, and no one is taken for dead."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.faults.n.lines import line_to_a_store

from gangline.errors import CapacityError
from gangline.faults.proxy import FaultRule
from gangline.line.run import lease

pytestmark = pytest.mark.row("N2", full="800 calls over lines that lose one request of ten, 200 leases")
JITTER = (
    FaultRule(action="delay", probability=0.2, seconds=0.5),
    FaultRule(action="delay", probability=0.5, seconds=0.1),
)
LOST = FaultRule(action="reset", probability=0.1)
SLOW = FaultRule(action="delay", probability=1.0, seconds=0.5)
AT_ONCE = 16


@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_every_write_and_read_comes_to_its_end(tmp_path, seed, count):
    with line_to_a_store(tmp_path, *JITTER, LOST, seed=seed) as line:
        store = line.store(deadline_seconds=60.0)

        def calls(number):
            first = store.put_if_absent(f"k/{number:03}", b"first")
            assert first is not None
            assert store.compare_and_set(f"k/{number:03}", b"second", first) is not None
            assert store.get(f"k/{number:03}").data == b"second"
            assert store.list(f"k/{number:03}")

        with ThreadPoolExecutor(AT_ONCE) as threads:
            list(threads.map(calls, range(count)))
        assert [each.key for each in line.folder.list("k/")] == [f"k/{number:03}" for number in range(count)]
        assert len(line.proxy.strikes) > count


@pytest.mark.parametrize("count", [4, pytest.param(200, marks=pytest.mark.slow)])
def test_who_renews_a_lease_over_a_slow_line_keeps_it(tmp_path, monkeypatch, seed, count):
    """Another machine asks for each of them all the time, by a line without delay."""
    monkeypatch.setattr(lease, "LEASE_SECONDS", 3.0)
    monkeypatch.setattr(lease, "RENEW_SECONDS", 1.0)
    holder, other = ("there:elsewhere:1:1:" + word for word in ("mine", "theirs"))
    with line_to_a_store(tmp_path, SLOW, seed=seed) as line:
        store, reported = line.store(deadline_seconds=60.0), []

        def holds(number):
            prefix, ends = f"runs/{number}", time.monotonic() + 4.0
            mine = lease.acquire_lease(store, prefix, holder=holder, at_least=0)
            with lease.renewed_lease(store, prefix, mine, on_problem=reported.append):
                while time.monotonic() < ends:
                    with pytest.raises(CapacityError):
                        lease.acquire_lease(line.folder, prefix, holder=other, at_least=0)
                    time.sleep(0.2)

        with ThreadPoolExecutor(AT_ONCE) as threads:
            list(threads.map(holds, range(count)))
        assert reported == []
