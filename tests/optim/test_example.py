"""The example of a plain FSDP2 loop, as its first line says to start it."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "optim" / "train_fsdp2.py"


def test_it_has_fewer_than_60_lines():
    assert len(EXAMPLE.read_text().splitlines()) < 60


@pytest.mark.slow
def test_it_learns_to_count_on_two_ranks(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(EXAMPLE)]
    found = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={"OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"},
    )
    assert found.returncode == 0, found.stderr[-3000:]
    lines = found.stdout.splitlines()
    assert lines[0].startswith("muon/standard: 24 matrices, 1 owner x 2 hosts")
    assert float(lines[-1].removeprefix("step 40: loss ")) < 0.5
