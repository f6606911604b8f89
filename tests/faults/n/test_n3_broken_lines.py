"""N3: a line flaps, is half open, breaks in the middle of an answer: no call hangs, no socket and no thread is left."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from pathlib import Path

import pytest
from tests.cluster.faults.proxy.rules import HttpRule
from tests.faults.n.lines import line_to_a_store
from tests.launch.kubernetes.served import MAPS, config_map, stand

from gangline.errors import StorageError
from gangline.faults.proxy import FaultRule
from gangline.launch.kubernetes.client.api import ApiUnavailable

pytestmark = pytest.mark.row("N3", full="1,000 broken lines to a store, 1,000 broken watches")
DATA = b"x" * 200_000
BROKEN = {
    "reset in the answer": FaultRule(action="reset", direction="down", after_bytes=50_000),
    "cut in the answer": FaultRule(action="cut", direction="down", after_bytes=50_000),
    "reset in the request": FaultRule(action="reset", on_request=1),
}
HALF_OPEN = FaultRule(action="swallow", probability=1.0)
SPARE = 4
"""Sockets that a pool may keep for its next call."""


def held() -> tuple[int, int]:
    """File descriptors and threads of this process."""
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()


def demand_flat(before: tuple[int, int]) -> None:
    """Both ends of a line that broke are closed a moment later."""
    deadline = time.monotonic() + 20.0
    while any(now > then + SPARE for now, then in zip(held(), before, strict=True)):
        assert time.monotonic() < deadline, f"file descriptors and threads: {before} before, {held()} now"
        time.sleep(0.05)


def ends_in(seconds: float, call: Callable[[], object]) -> object:
    """What `call` comes to; a test that fails where it hangs."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="call")
    try:
        return pool.submit(call).result(seconds)
    except TimeoutError:
        raise AssertionError(f"no end in {seconds} s") from None
    finally:
        pool.shutdown(wait=False)


@pytest.mark.parametrize("cycles", [15, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])])
def test_no_call_to_a_store_hangs_and_nothing_is_left_open(tmp_path, seed, cycles):
    with line_to_a_store(tmp_path, seed=seed) as line:
        line.folder.put("k", DATA)
        patient, hurried = line.store(deadline_seconds=20.0), line.store(deadline_seconds=0.3)
        assert patient.get("k").data == hurried.get("k").data == DATA
        before = held()
        for what in islice(cycle([*BROKEN, "half open", "flapping"]), cycles):
            if what in BROKEN:
                line.proxy.set_rules(BROKEN[what])
                assert ends_in(10.0, lambda: patient.get("k")).data == DATA
                continue
            line.proxy.set_rules(*([HALF_OPEN] if what == "half open" else []))
            if what == "flapping":
                line.proxy.shut()
            with pytest.raises(StorageError, match="no answer"):
                ends_in(10.0, lambda: hurried.get("k"))
            line.proxy.open()
            line.proxy.set_rules()
            assert ends_in(10.0, lambda: patient.put("other", DATA))
        demand_flat(before)


@pytest.mark.parametrize("cycles", [6, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])])
def test_no_watch_of_the_cluster_hangs_and_nothing_is_left_open(tmp_path, monkeypatch, cycles):
    monkeypatch.setattr("gangline.launch.kubernetes.client.client.SILENCE_SECONDS", 0.3)
    with stand(tmp_path) as here:
        client = here.client(deadline_seconds=5.0)
        made = client.create(MAPS, config_map("a"))
        version = str(int(made["metadata"]["resourceVersion"]) - 1)

        def watch():
            return list(client.watch(MAPS, resource_version=version, seconds=2.0))

        before = held()
        for action in islice(cycle(["cut_watch", "stall_watch"]), cycles):
            here.proxy.book.set(HttpRule(action=action, after=1, seconds=6.0))
            try:
                ends_in(4.0, watch)
            except ApiUnavailable:
                assert action in ("cut_watch", "stall_watch")
        here.proxy.book.set()
        demand_flat(before)
