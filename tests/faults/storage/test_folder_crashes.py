"""A writer of a folder killed at every call that changes the disk: old or new, and the next writer goes on."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.row("S1")
def test_killed_writer_leaves_old_or_new(tmp_path):
    program = Path(__file__).with_name("folder_crashes.py")
    ended = subprocess.run([sys.executable, str(program), str(tmp_path)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    seen = json.loads(ended.stdout)
    print({name: len(states) // 2 for name, states in seen.items()})
    assert seen.keys() == {"put", "create", "swap", "upload", "delete"}
    for name, states in seen.items():
        assert len(states) >= 6, f"{name} has at least three calls that change the disk"
        assert states[0] == "old", f"{name}: killed before its first call"
        assert states[-1] == "new", f"{name}: not killed at all"
        assert states == sorted(states, reverse=True), f"{name}: one moment of change, never back: {states}"
