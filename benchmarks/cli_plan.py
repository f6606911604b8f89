"""`gangline plan` of a model whose profile and device rates are known, as a whole process, against `gangline --help`.

The goal is 0.3 s on an idle machine. Prints JSON; exit 1 if it is missed.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
GOAL_SECONDS = 0.3
PLAN, HELP = ("plan",), ("--help",)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        repo = Path(folder) / "bytegpt"
        shutil.copytree(ROOT / "examples/bytegpt", repo)
        for words in (("init", "-q"), ("add", "--all"), ("commit", "-q", "-m", "first")):
            subprocess.run(["git", "-c", "user.name=b", "-c", "user.email=b@b", *words], cwd=repo, check=True)
        _seconds(repo, PLAN)  # inspects the model and measures the rates, which are kept
        taken = {words: [_seconds(repo, words) for _ in range(rounds)] for words in (PLAN, HELP)}
    plan, bare = taken[PLAN], median(taken[HELP])
    found = {
        "load_average": os.getloadavg()[0], "plan_seconds": {"least": min(plan), "median": median(plan)},
        "help_seconds": bare, "ratio": median(plan) / bare,
    }  # fmt: skip
    print(json.dumps(found, indent=1))
    return int(median(plan) > GOAL_SECONDS)


def _seconds(repo: Path, words: tuple[str, ...]) -> float:
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "gangline", *words]
    start = time.perf_counter()
    subprocess.run(command, cwd=repo, env=environ, check=True, stdout=subprocess.DEVNULL)
    return round(time.perf_counter() - start, 3)


if __name__ == "__main__":
    sys.exit(main())
