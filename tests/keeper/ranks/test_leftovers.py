"""Processes that a rank left behind, as the keeper finds them among its children."""

import os
import subprocess
import time

from gangline.keeper.ranks import rank_processes
from gangline.procfs import children


def test_a_process_that_starts_another_program_and_has_no_command_for_a_moment_is_found(monkeypatch):
    own = children(os.getpid())
    ready = time.monotonic() + 0.1
    monkeypatch.setattr(rank_processes, "command", lambda _: ["sleep", "600"] if time.monotonic() > ready else [])
    with subprocess.Popen(["sleep", "600"]) as left:
        try:
            assert rank_processes.leftover_commands(own) == ("sleep 600",)
        finally:
            left.kill()
