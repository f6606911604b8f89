"""Sessions on a GPU, rehearsed: each part's table and file, what a missed limit and a part without end come to."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SESSION = ROOT / "benchmarks" / "gpu" / "session.py"
FIGURES = {
    "nccl": 3, "memory": 13, "step": 6, "saves": 3, "rates": 7, "restart": 2, "muon_kernels": 8, "muon_step": 2,
    "matrix_costs": 2, "matrix_exchange": 1,
}  # fmt: skip
"""Number of figures of each part."""
QUICK = ("saves",)


def session(out, *arguments, **environ):
    command = [sys.executable, str(SESSION), *arguments, "--out", str(out)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environ)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", [pytest.param(p, marks=[] if p in QUICK else pytest.mark.slow) for p in FIGURES])
@pytest.mark.long
def test_a_rehearsed_part_gives_its_table_and_its_file(tmp_path, part):
    done = session(tmp_path, "--rehearse", part)
    assert done.returncode == 0, done.stdout + done.stderr
    reported = json.loads((tmp_path / f"{part}.json").read_text())
    assert (reported["part"], reported["ended"], reported["rehearsal"], reported["missing"]) == (
        part,
        "complete",
        True,
        [],
    )
    assert len(reported["figures"]) == FIGURES[part]
    for each in reported["figures"]:
        assert each.keys() == {"name", "value", "unit", "bound", "limit", "source", "held"}
        assert math.isfinite(each["value"])
        assert each["held"] is None
        assert f"{each['name']}  " in done.stdout
    where = reported["conditions"]
    assert where.keys() >= {"device", "driver", "torch", "cuda", "nccl", "python", "cores", "load", "date", "kit"}
    assert where["torch"] in done.stdout
    assert reported["seen"]["wall_seconds"] > 0


def test_a_part_without_end_is_stopped_and_says_so(tmp_path):
    done = session(tmp_path, "--rehearse", "memory", "--seconds", "0.5")
    assert done.returncode == 1
    assert "memory: stopped after 0 s" in done.stdout.replace("0.5", "0")
    assert not list(tmp_path.glob("*.staged"))


def test_a_part_is_refused_where_there_is_no_gpu(tmp_path):
    done = session(tmp_path, "saves", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 1
    assert "wanted a CUDA device, found none; `--rehearse` needs none" in done.stderr


def test_an_unknown_part_is_refused_with_those_there_are(tmp_path):
    done = session(tmp_path, "speed")
    assert done.returncode == 2
    assert all(part in done.stderr for part in FIGURES)
