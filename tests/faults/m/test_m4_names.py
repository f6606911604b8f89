"""M4: a million names cost one run its room, and the process 20 MiB at most."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gangline.metrics.labels import MAX_SERIES, MAX_SERIES_PER_RUN

pytestmark = pytest.mark.row("M4")
ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("count", [200_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_names_without_end_are_capped_and_counted_and_others_keep_theirs(count):
    done = subprocess.run(
        [sys.executable, "tests/faults/m/attack.py", str(count)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    reported = json.loads(done.stdout)
    assert reported["greedy"] <= MAX_SERIES_PER_RUN
    assert reported["all"] <= MAX_SERIES + 3
    assert reported["honest"] > 40
    assert reported["grown_bytes"] <= 20 * 2**20
    assert reported["dropped"]["undeclared"] == count / 5 * 2
    assert reported["dropped"]["cap"] > 0
