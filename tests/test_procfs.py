"""Readers of /proc: what processes call themselves is bounded, and no text that breaks a reader."""

import subprocess
import time

from gangline import procfs


def test_of_a_command_no_more_is_read_than_its_first_4_kb_whatever_its_bytes():
    words = [b"name\xff", b"-c", b"read line # " + b"x" * 100_000]
    with subprocess.Popen(words, executable="/bin/sh", stdin=subprocess.PIPE) as process:
        while (found := procfs.command(process.pid))[:1] != ["name\ufffd"]:
            time.sleep(0.01)
        assert len(" ".join(found)) <= 4096
        process.communicate(b"\n")
    assert procfs.command(process.pid) == []
