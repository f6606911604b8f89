"""P10: nothing that a process keeps secret is in what it exports, wherever it was named."""

import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from tests.report.records import passed

from gangline.drill.invariants import spellings
from gangline.serve.context.telemetry import Telemetry
from gangline.spec.config.site import ForgeTable, Site, StoreTable

pytestmark = pytest.mark.row("P10")
CANARY = "canary-of-the-series-5d1e0c"
ROOT = Path(__file__).resolve().parents[3]
EXPORTS = """
import signal, sys
from gangline.metrics.exporter import DriverExporter
from tests.report.records import passed
exporter = DriverExporter(0)
exporter.show(passed())
print(exporter.port, flush=True)
signal.pause()
"""


def has_canary(data: bytes) -> bool:
    return any(each in data for each in spellings(CANARY.encode()))


def test_neither_environment_nor_arguments_of_a_driver_are_in_its_series():
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "STORE": f"ACCESS:{CANARY}", "HOOK_SECRET": CANARY}
    command = [sys.executable, "-c", EXPORTS, CANARY]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE) as driver:
        try:
            port = int(driver.stdout.readline())
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                body, headers = answer.read(), str(answer.headers).encode()
        finally:
            driver.kill()
    assert passed().run.id.encode() in body
    assert not has_canary(body + headers)


def test_a_service_resolves_no_secret_in_order_to_report_itself(monkeypatch):
    monkeypatch.setenv("HOOK_SECRET", CANARY)
    forge = ForgeTable(kind="gitea", projects={"a/b": "bytegpt"}, hook_secret="secret:env:HOOK_SECRET")
    telemetry = Telemetry.of(Site(forge={"hub": forge}, store=StoreTable(credentials="secret:env:STORE")))
    telemetry.webhook(CANARY, "push", "forged", 0.001)
    telemetry.forge_request("hub", "refused")
    telemetry.store_request(CANARY, "failed", time.monotonic())
    _, body = telemetry.render()
    assert b'outcome="forged"' in body
    assert not has_canary(body)


def test_the_search_finds_the_canary_where_it_is():
    assert has_canary(f"x{CANARY}y".encode())
