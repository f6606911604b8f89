"""C2 of the service: killed at random moments, it loses no order, and drives none twice."""

import os
import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.serve.orders.yard import ALL, Yard

from gangline.serve.database.open import open_database

pytestmark = [pytest.mark.row("C2", full="30 orders of a service that is killed again and again"), pytest.mark.long]
ROOT = Path(__file__).parents[3]
MOST_KILLS = 60


@contextmanager
def service(folder):
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "STARTS": str(folder / "starts"), "DRIVE_SECONDS": "0.5"}
    program = [sys.executable, str(Path(__file__).with_name("order_service.py")), str(folder)]
    process = subprocess.Popen(program, env=environ, cwd=ROOT)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def orders(folder):
    database = open_database(str(folder / "home" / "gangline.db"))
    try:
        return database.orders.list(states=ALL, projects=None, limit=1000)
    finally:
        database.close()


@pytest.mark.parametrize("pushes", [3, pytest.param(30, marks=pytest.mark.slow)])
def test_a_service_killed_at_any_moment_loses_and_doubles_nothing(tmp_path, seed, pushes):
    yard = Yard(tmp_path)
    commits = {}
    for n in range(pushes):
        commits[f"b{n}"] = yard.push(branch=f"b{n}")
        yard.order(f"b{n}")
    yard.close()
    draw = random.Random(seed)
    for _ in range(MOST_KILLS):
        with service(tmp_path):
            time.sleep(draw.uniform(1.0, 6.0))
        if all(each.state == "done" for each in orders(tmp_path)):
            break
    found = orders(tmp_path)
    assert {each.branch: each.commit for each in found} == commits, [each.note for each in found]
    assert {each.state for each in found} == {"done"}
    assert sorted(each.run for each in found) == sorted(each.run.id for each in yard.records())
    assert {each.run.verdict for each in yard.records()} == {"passed"}
    assert set(Counter(run for run, _ in yard.starts()).values()) == {1}
