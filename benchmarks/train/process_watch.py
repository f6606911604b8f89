"""Starts of processes below a rank that is watched, against the same starts below one that is not, in one run.

    python benchmarks/train/process_watch.py [--pairs 100] [--json FILE]

`python`: a Python that does nothing, started by a watched one; `program`: a small program that is no Python, started
by `subprocess`; `fork`: a process of `multiprocessing` that does nothing. Both sides have the start-up folder on their
path; one has the variable that asks for the watch (`train/startup/processes.py`).

Seconds are those of processors, of the starting and the started process together; a pair is one start of each side,
one after the other, and the median of the ratios counts. Bound: at most 1.1 for `python`, whose start is the smallest
that a rank can cause. The others are printed without a bound: no training step starts a process. What the watch costs
a step is measured by `import_audit.py`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median, quantiles

from gangline.spec.python_environment import STARTUP

BOUND = 1.1
WARM_UP = 3
SIDE = """
import multiprocessing, os, resource, subprocess, sys
def nothing(): pass
def start(kind):
    if kind == "python": subprocess.run([sys.executable, "-c", "pass"], check=True)
    elif kind == "program": subprocess.run(["/bin/true"], check=True)
    else:
        process = multiprocessing.get_context("fork").Process(target=nothing)
        process.start()
        process.join()
def seconds():
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
for line in sys.stdin:
    began = seconds()
    start(line.strip())
    print(seconds() - began, flush=True)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        sides = [_start(Path(place), watched=watched) for watched in (False, True)]
        found = {kind: _compare(kind, sides, asked.pairs) for kind in ("python", "program", "fork")}
        for side in sides:
            side.communicate()
    for kind, row in found.items():
        print(
            f"{kind:8} {row['bare_ms']:6.2f} ms, watched / bare {row['ratio']:.4f}"
            f" (quartiles {row['low']:.4f} to {row['high']:.4f}, {asked.pairs} pairs)"
        )
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1) + "\n")
    return int(found["python"]["ratio"] > BOUND)


def _compare(kind: str, sides: list["subprocess.Popen[str]"], pairs: int) -> dict[str, float]:
    rows = [[_seconds(side, kind) for side in sides] for _ in range(WARM_UP + pairs)][WARM_UP:]
    low, middle, high = quantiles([watched / bare for bare, watched in rows], n=4)
    return {"ratio": middle, "low": low, "high": high, "bare_ms": 1000 * median(bare for bare, _ in rows)}


def _seconds(side: "subprocess.Popen[str]", kind: str) -> float:
    assert side.stdin is not None
    assert side.stdout is not None
    side.stdin.write(f"{kind}\n")
    side.stdin.flush()
    return float(side.stdout.readline())


def _start(place: Path, *, watched: bool) -> "subprocess.Popen[str]":
    own = {"GANGLINE_PROCESSES": str(place / "processes.jsonl")} if watched else {}
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(STARTUP)} | own
    return subprocess.Popen(
        [sys.executable, "-c", SIDE], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


if __name__ == "__main__":
    sys.exit(main())
