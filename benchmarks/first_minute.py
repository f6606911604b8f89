"""Processor seconds of `examples/demo.py` with this checkout, against those with another one, in turn.

Another checkout is a git worktree with an environment of its own: `python benchmarks/first_minute.py ../before`. Each
run has an empty cache and a new repository. Wall time depends on what else a machine does, processor seconds less so.
Prints JSON with the least of each, by kind of process and in all; exit 1 if the goal of 90 is missed.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from gangline.keeper.ipc.signals import adopt_orphans
from gangline.procfs import children

ROOT = Path(__file__).parents[1]
GOAL_SECONDS = 90.0
TICKS = os.sysconf("SC_CLK_TCK")
LOOK_SECONDS = 0.05
KINDS = ("measure.inspect", "measure.device_rates", "keeper.main", "transfer.uploader", "rank.rendezvous_server",
         "rank.warm_parent", "roles.smoke_test", "bin/gangline run", "git")  # fmt: skip
"""Words of a command by which a process is counted; forks, such as ranks, count as the process that forked them."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path, nargs="?", help="checkout with a .venv to compare with")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    adopt_orphans()
    checkouts = {"after": ROOT} | ({"before": options.before.resolve()} if options.before else {})
    runs: dict[str, list[dict[str, float]]] = defaultdict(list)
    for _ in range(options.rounds):
        for name, checkout in checkouts.items():
            runs[name].append(demo_seconds(checkout))
    least = {name: min(found, key=lambda each: each["all"]) for name, found in runs.items()}
    answer = {"load_average": os.getloadavg()[0], "all": {name: [each["all"] for each in runs[name]] for name in runs},
              "least": least}  # fmt: skip
    if "before" in least:
        answer["ratio"] = round(least["after"]["all"] / least["before"]["all"], 3)
    print(json.dumps(answer, indent=1))
    return int(least["after"]["all"] > GOAL_SECONDS)


def demo_seconds(checkout: Path) -> dict[str, float]:
    """Processor seconds of one demo by kind of process as last seen, and of all to their end."""
    shutil.rmtree(checkout / ".gangline" / "demo", ignore_errors=True)
    before = _of_children()
    seen: dict[tuple[int, str], tuple[str, float]] = {}
    with tempfile.TemporaryDirectory() as cache:
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        command = [str(checkout / ".venv" / "bin" / "python"), "examples/demo.py"]
        process = subprocess.Popen(
            command, cwd=checkout, env={**environ, "GANGLINE_CACHE": cache}, stdout=subprocess.DEVNULL
        )
        while process.poll() is None:
            for pid, start, words, seconds in _descendants(os.getpid()):
                seen[pid, start] = (words or seen.get((pid, start), ("", 0.0))[0], seconds)  # a zombie has no words
            time.sleep(LOOK_SECONDS)
    if process.returncode:
        raise SystemExit(f"the demo of {checkout} ended with {process.returncode}")
    found: dict[str, float] = defaultdict(float)
    for words, seconds in seen.values():
        found[next((kind for kind in KINDS if kind in words), "other")] += seconds
    found["all"] = _of_children() - before
    return {kind: round(seconds, 2) for kind, seconds in sorted(found.items())}


def _of_children() -> float:
    """Processor seconds of all that has ended, detached keepers among them: they become children of this process."""
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _descendants(top: int) -> Iterator[tuple[int, str, str, float]]:
    """Pid, start time, command, and processor seconds of every process below `top`."""
    waiting = children(top)
    while waiting:
        pid = waiting.pop()
        waiting += children(pid)
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            yield pid, fields[19], words, (int(fields[11]) + int(fields[12])) / TICKS


if __name__ == "__main__":
    sys.exit(main())
