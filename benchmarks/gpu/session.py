"""One part of what only a GPU can show, or several: a table on the screen, figures in one JSON file for each.

    python3 benchmarks/gpu/session.py PART... [--out FOLDER] [--seconds 540]
    python3 benchmarks/gpu/session.py --rehearse PART...

PART: nccl, memory, step, saves, rates, restart, muon_kernels, muon_step, matrix_costs, matrix_exchange, or all. It runs
in a kit (`make gpu-kit`) on a machine without network, whose Python has torch with CUDA; the wheels of the kit are
unpacked in its folder. A part that has not ended after its seconds is stopped, and keeps the figures that it has. A
rehearsal does the same on CPUs in small shapes and judges no limit. Ends with 1 where a figure is missing or a limit is
not held.

Only the standard library until the part itself runs, in a process of its own.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))
PARTS = ("nccl", "memory", "step", "saves", "rates", "restart", "muon_kernels", "muon_step",
         "matrix_costs", "matrix_exchange")  # fmt: skip
SECONDS = 540.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=[*PARTS, "all"], metavar="PART")
    parser.add_argument("--rehearse", action="store_true", help="small shapes on CPUs")
    parser.add_argument("--out", type=Path, default=ROOT / ".gangline" / "benchmarks" / "gpu")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="time of each part")
    asked = parser.parse_args()
    environ = prepared()
    chosen = PARTS if "all" in asked.parts else tuple(asked.parts)
    codes = [run(part, asked.out / f"{part}.json", environ, asked.seconds, rehearse=asked.rehearse) for part in chosen]
    return max(codes)


def prepared() -> dict[str, str]:
    """Environment of a part: this source, the kit's packages where this is a kit, one thread for each rank."""
    path = [str(ROOT / "src"), str(ROOT), str(HERE.parent / "train")]
    if (ROOT / "wheels").is_dir():
        wanted, found = json.loads((ROOT / "kit.json").read_text())["python"], ".".join(map(str, sys.version_info[:2]))
        if found != wanted:
            raise SystemExit(f"session: wanted Python {wanted}, which the wheels of this kit are for, found {found}")
        path.insert(0, str(unpacked()))
    path += [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
    own = {"PYTHONPATH": os.pathsep.join(path), "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    return {"TORCHINDUCTOR_CACHE_DIR": str(ROOT / ".gangline" / "compiled"), **os.environ, **own}


def unpacked() -> Path:
    """The kit's wheels, all in one folder that goes before the machine's own packages."""
    site = ROOT / "site"
    if not (site / "complete").exists():
        for wheel in sorted((ROOT / "wheels").glob("*.whl")):
            with zipfile.ZipFile(wheel) as file:
                file.extractall(site)
        (site / "complete").touch()
    return site


def run(part: str, out: Path, environ: dict[str, str], seconds: float, *, rehearse: bool) -> int:
    """Exit code of one part; its table is on the screen."""
    out.unlink(missing_ok=True)
    command = [sys.executable, str(HERE / "part.py"), part, str(out), *(["--rehearse"] if rehearse else [])]
    child = subprocess.Popen(command, env=environ, start_new_session=True)
    reason = ""
    try:
        code = child.wait(seconds)
    except subprocess.TimeoutExpired:
        code, reason = 1, f"stopped after {seconds:.0f} s"
    finally:
        stop(child)
    return show(out, part, code, reason)


def stop(child: "subprocess.Popen[bytes]") -> None:
    """It and all that it started."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        child.wait()


def show(out: Path, part: str, code: int, reason: str) -> int:
    from figures import table

    if not out.exists():
        print(f"{part}: {reason or f'ended with {code} before its first figure'}", flush=True)
        return code or 1
    reported = json.loads(out.read_text())
    if reported["ended"] == "under way":
        reported["ended"] = reason or f"broke off, exit {code}"
        out.write_text(json.dumps(reported, indent=1) + "\n")
    print(f"\n{table(reported)}\nfigures in {out}\n", flush=True)
    held = all(each["held"] is not False for each in reported["figures"])
    return code or int(not held or reported["ended"] != "complete")


if __name__ == "__main__":
    sys.exit(main())
