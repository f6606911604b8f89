"""Start of the command line: `gangline --help` against `python -c "import typer"` on the same machine.

Bounds: 0.25 s, and at most twice the import of typer alone.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

ROUNDS = 15


def timed(arguments: list[str]) -> float:
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    return median(times)


def main() -> int:
    help_, typer, bare = timed(["-m", "gangline", "--help"]), timed(["-c", "import typer"]), timed(["-c", "pass"])
    result = {
        "help_seconds": round(help_, 4),
        "import_typer_seconds": round(typer, 4),
        "python_seconds": round(bare, 4),
        "ratio": round(help_ / typer, 3),
    }
    print(json.dumps(result, indent=1))
    folder = Path(".gangline/benchmarks")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cli_help.json").write_text(json.dumps(result) + "\n")
    return 0 if help_ <= 0.25 and result["ratio"] <= 2 else 1


if __name__ == "__main__":
    sys.exit(main())
