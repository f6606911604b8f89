"""One part in its own process: `python part.py NAME OUT.json [--rehearse]`, started by `session.py`."""

import argparse
import importlib
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from figures import Report
from shapes import FULL, SMALL

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("out", type=Path)
    parser.add_argument("--rehearse", action="store_true")
    asked = parser.parse_args()
    shapes = SMALL if asked.rehearse else FULL
    part = importlib.import_module(f"parts.{asked.name}")
    report = Report(part=asked.name, path=asked.out, names=part.names(shapes), conditions=conditions(shapes.device),
                    is_rehearsal=asked.rehearse)  # fmt: skip
    report.write()
    began = time.monotonic()
    part.run(report, shapes)
    report.tell("wall_seconds", round(time.monotonic() - began, 1))
    report.end()
    return 1 if report.missing else 0


def conditions(device: str) -> dict[str, Any]:
    """What the figures depend on and no code decides.

    Raises:
        SystemExit: There is no such device here.
    """
    import torch

    from gangline.procfs import processor_name

    if device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("session: wanted a CUDA device, found none; `--rehearse` needs none")
    kit = ROOT / "kit.json"
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else processor_name(),
        **(_of_gpu() if device == "cuda" else {"driver": None}),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if device == "cuda" else None,
        "python": platform.python_version(),
        "processor": processor_name(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "load": round(os.getloadavg()[0], 1),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "kit": kit.read_text() if kit.exists() else None,
    }


def _of_gpu() -> dict[str, Any]:
    asked = ("driver_version", "memory.total", "clocks.sm", "clocks.max.sm", "power.limit", "temperature.gpu")
    command = ["nvidia-smi", f"--query-gpu={','.join(asked)}", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.splitlines()[0]
    except (OSError, subprocess.SubprocessError) as error:
        return {"driver": f"not told: {error}"}
    found = dict(zip(asked, (each.strip() for each in said.split(",")), strict=True))
    return {"driver": found.pop("driver_version"), "gpu": found}


if __name__ == "__main__":
    sys.exit(main())
