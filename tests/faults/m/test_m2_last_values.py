"""M2: a rank that is killed before any scrape leaves its last values all the same: they are read from the record."""

import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from tests.report.records import passed
from tests.serve.context.test_telemetry import samples

from gangline.serve.context.telemetry import Telemetry

pytestmark = pytest.mark.row("M2")
RANK = """
import signal, sys
from gangline.metrics.exporter import RankExporter
exporter = RankExporter("r", 0, 0)
exporter.observe({"event": "step", "step": 120, "loss": 2.4, "seconds": 0.1, "phases": {}})
print(exporter.port, flush=True)
signal.pause()
"""


def test_what_a_killed_rank_said_last_is_exported_by_the_service_for_a_hundred_runs_of_a_hundred():
    with subprocess.Popen([sys.executable, "-c", RANK], stdout=subprocess.PIPE) as rank:
        assert int(rank.stdout.readline()) > 0
        os.kill(rank.pid, signal.SIGKILL)
    assert rank.returncode == -signal.SIGKILL
    telemetry = Telemetry()
    for number in range(100):
        record = passed()
        project = f"p{number % 2}"
        run = replace(record.run, id=f"{project}-9f31c2a0-{number:06}", project=project)
        telemetry.run_ended(replace(record, run=run))
    found = samples(telemetry)
    point = passed().curve.points[-1]
    assert sum(value == point.value for key, value in found.items() if key[0] == "train_loss") == 100
    assert sum(value == point.step for key, value in found.items() if key[0] == "train_step") == 100
