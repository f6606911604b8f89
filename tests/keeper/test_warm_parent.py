"""Tasks are forked from a parent that has torch; here it has a small stand-in, so that a fork costs nothing."""

import os
import signal
import time

import pytest
from tests.keeper.coordination.nodes import poll

from gangline.procfs import children, command, descendants, state
from gangline.train.rank.warm_parent import PRELOADED


@pytest.fixture
def stand_in(tmp_path):
    """Function of modules by file: a folder for PYTHONPATH that has them."""

    def make(**modules: str) -> str:
        for path, text in modules.items():
            (tmp_path / "path" / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "path" / path).write_text(text)
        return str(tmp_path / "path")

    return make


EMPTY = f"""
import sys, threading, time, types
if "gangline.train.rank.warm_parent" in sys.orig_argv:
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
if {{"gangline.train.rank.warm_parent", "gangline.train.rank.child"}} & {{*sys.orig_argv}}:
    sys.modules |= {{name: types.ModuleType(name) for name in {PRELOADED}}}
    print("started", flush=True)
"""
"""For `sitecustomize`: all that ranks import is there and empty, and a parent of ranks has a second thread."""


WAITING = f"""
import sys, time, types
if {{"gangline.train.rank." + name for name in ("warm_parent", "child", "rendezvous_server")}} & {{*sys.orig_argv}}:
    sys.modules |= {{name: types.ModuleType(name) for name in {PRELOADED}}}
    sys.modules["gangline.train.rank.main"].main = lambda: time.sleep(600)
    print("started", flush=True)
"""
"""For `sitecustomize`: ranks wait, and an interpreter that starts says so."""


@pytest.mark.parametrize("method", ["auto", "spawn"])
def test_server_of_the_store_is_forked_where_ranks_are_and_ends_with_its_keeper(keep, stand_in, method):
    path = stand_in(**{"sitecustomize.py": WAITING})
    gang = keep("", task="program:Task", PYTHONPATH=path, GANGLINE_START_METHOD=method)
    gang.wait_for(lambda: len(gang.events("rank_started")) == 2)
    forks = method == "auto"
    assert ("started" in gang.log("rendezvous")) is not forks, "a fork starts no interpreter, and imports nothing again"
    assert (len(children(gang.process.pid)), bool(gang.events("warm_ready"))) == ((2, True) if forks else (4, False))
    gang.process.kill()
    gang.process.wait()
    poll(lambda: not gang.leftovers())


def test_server_of_the_store_outlives_the_parent_that_forked_it(keep, stand_in):
    gang = keep("", task="program:Task", PYTHONPATH=stand_in(**{"sitecustomize.py": WAITING}))
    gang.wait_for(lambda: len(gang.events("rank_started")) == 2)
    ranks = {event["pid"] for event in gang.events("rank_started")}
    warm = next(pid for pid in children(gang.process.pid) if ranks <= {*children(pid)})
    (server,) = {*children(warm)} - ranks
    os.kill(warm, signal.SIGKILL)
    gang.wait_for(lambda: len(gang.events("rank_started")) == 4)
    assert server in children(gang.process.pid), "the next generation meets at the same server"
    assert gang.log("warm").count("started") == 2
    assert "started" not in gang.log("rendezvous")


def test_parent_that_cannot_import_ends_the_gang_with_its_words(keep, stand_in):
    broken = stand_in(**{"torch/__init__.py": "raise ImportError('libcudart.so.13 is missing')"})
    end = keep("", task="program:Task", PYTHONPATH=broken).end()
    assert (end.exit_code, end.retry) == (30, "never"), end
    assert "libcudart.so.13 is missing" in end.reason
    assert "warm.log" in end.reason


def test_parent_with_threads_forks_nothing(keep, stand_in):
    gang = keep("", task="program:Task", restarts=0, PYTHONPATH=stand_in(**{"sitecustomize.py": EMPTY}))
    end = gang.end()
    ready = gang.events("warm_ready")
    assert [event["threads"] for event in ready] == [2]
    assert end.exit_code != 0, "the stand-in cannot train"
    assert "started" in gang.log("warm")
    assert "started" in gang.log(0), "ranks are fresh processes: what is forked starts no interpreter"


def test_parent_that_does_not_come_up_is_not_progress(keep, stand_in):
    slow = stand_in(**{"torch/__init__.py": "import time; time.sleep(600)"})
    end = keep("", task="program:Task", PYTHONPATH=slow, GANGLINE_WATCHDOG_START_SECONDS="1").end()
    assert (end.exit_code, end.retry) == (33, "same"), end


SAVING = WAITING.replace("lambda: time.sleep(600)", "save").replace(
    "import sys,",
    """import signal, sys

def save():
    signal.signal(signal.SIGTERM, lambda *_: stops.append(1))
    print("ready", flush=True)
    while not stops:
        time.sleep(0.02)
    time.sleep(1.0)
    print("saved", flush=True)
    return 143

stops = []
import""",
)


@pytest.mark.parametrize("method", ["auto", "spawn"])
def test_stop_that_reaches_every_process_lets_ranks_save(keep, stand_in, tmp_path, method):
    """As Slurm stops a job: SIGTERM to keeper, helpers and ranks alike."""
    path = stand_in(**{"sitecustomize.py": SAVING})
    gang = keep("", task="program:Task", PYTHONPATH=path, GANGLINE_START_METHOD=method)
    gang.wait_for(lambda: all("ready" in gang.log(rank) for rank in (0, 1)))
    for pid in [*descendants(gang.process.pid), gang.process.pid]:
        os.kill(pid, signal.SIGTERM)
    end = gang.end()
    assert {each["code"] for each in end.evidence["exits"].values()} == {143}, end
    assert [gang.log(rank).count("saved") for rank in (0, 1)] == [1, 1]
    assert gang.events("uploaded")[0]["complete"]
    logs = [path.read_text() for path in tmp_path.rglob("*") if path.is_file() and path.parent.name == "logs"]
    assert sum("saved" in log for log in logs) == 4, "what was written after the signal is in the store too"
    assert not gang.leftovers()


def test_stop_that_reaches_every_process_leaves_the_server_of_the_store(keep, stand_in):
    path = stand_in(**{"sitecustomize.py": SAVING})
    gang = keep("", task="program:Task", PYTHONPATH=path, GANGLINE_START_METHOD="spawn")
    gang.wait_for(lambda: all("ready" in gang.log(rank) for rank in (0, 1)))
    server = next(
        pid for pid in children(gang.process.pid) if any("rendezvous_server" in word for word in command(pid))
    )
    os.kill(server, signal.SIGTERM)
    time.sleep(0.5)
    assert state(server) in ("S", "R"), "ranks that save still meet there"
    os.kill(gang.process.pid, signal.SIGTERM)
    assert gang.end().exit_code == 143


def test_stop_during_the_imports_starts_no_rank(keep, stand_in):
    slow = stand_in(**{"torch/__init__.py": "import time; time.sleep(600)"})
    gang = keep("", task="program:Task", PYTHONPATH=slow)
    gang.wait_for(lambda: gang.state() == "starting" and len(children(gang.process.pid)) == 2)
    os.kill(gang.process.pid, signal.SIGTERM)
    end = gang.end()
    assert end.exit_code == 143, end
    assert not gang.events("rank_started")
    assert not gang.leftovers()
