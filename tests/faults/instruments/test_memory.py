"""The instrument sees what its own program takes, and nothing of who started it."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PROGRAM = """
from tests.faults.instruments.memory import peak_bytes
before = peak_bytes()
taken = bytearray(b"x" * (64 << 20))
print(before, peak_bytes())
"""


def test_what_a_program_takes_is_seen_and_what_its_parent_took_is_not():
    ballast = bytearray(b"x" * (256 << 20))
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environ, capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert before < len(ballast) / 2
    assert after - before >= 64 << 20
