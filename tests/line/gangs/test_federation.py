"""The coordinator of a federated run: a child of the driver, started again when it is killed."""

import os
import signal
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.flare.offers import new_plan

from gangline.errors import ConfigError, NotInstalledError
from gangline.line.gangs import federation
from gangline.line.request.targets import launcher_of

PROGRAM = """
import os, signal, sys, time
with open(sys.argv[1] + "/pids", "a") as file:
    file.write(f"{os.getpid()}\\n")
time.sleep(600)
"""


def context(plan, *, target="local", **site):
    given = {"kit": "/nonexistent/kit", "admin": "secret:file:/nonexistent/admin"} | site
    return SimpleNamespace(
        plan=plan, record=SimpleNamespace(run=SimpleNamespace(target=target, launcher=launcher_of(target))),
        site=SimpleNamespace(federation=SimpleNamespace(**given)),
    )  # fmt: skip


def started(*_):
    raise AssertionError("no gang was started")


def test_a_run_without_real_members_has_no_coordinator():
    plan = new_plan()
    for each in (replace(plan, federation=None), replace(plan, federation=replace(plan.federation, simulated=True))):
        with federation.carried(context(each), started) as found:
            assert found is started


def test_real_members_of_a_gang_elsewhere_are_refused():
    with (
        pytest.raises(ConfigError, match="wanted local"),
        federation.carried(context(new_plan(), target="kubernetes"), started),
    ):
        pass


def test_another_version_of_nvflare_and_a_kit_that_is_not_there_are_named(monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda _: "2.8.1")
    with pytest.raises(NotInstalledError, match=r"wanted nvflare 2\.9\.x, found 2\.8\.1"):
        federation.carried(context(new_plan()), started).__enter__()
    monkeypatch.setattr("importlib.metadata.version", lambda _: "2.9.0")
    with pytest.raises(ConfigError, match="wanted a server kit of NVFlare"):
        federation.carried(context(new_plan()), started).__enter__()


def pids(folder, *, count):
    deadline = time.monotonic() + 30
    while len(found := (folder / "pids").read_text().split() if (folder / "pids").exists() else []) < count:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return [int(each) for each in found]


def test_a_coordinator_that_is_killed_is_started_again_and_ends_with_the_gang(tmp_path, monkeypatch):
    (tmp_path / "waiting_program.py").write_text(PROGRAM)
    monkeypatch.setattr(federation, "_ENDING_SECONDS", 0.1)
    with federation._process("waiting_program", tmp_path, os.environ | {"PYTHONPATH": str(tmp_path)}):
        [first] = pids(tmp_path, count=1)
        os.kill(first, signal.SIGKILL)
        _, second = pids(tmp_path, count=2)
        assert second != first
    with pytest.raises(ProcessLookupError):
        os.kill(second, 0)
