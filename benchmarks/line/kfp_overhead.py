"""What kfp's local runner adds to a task: a run of eight tasks under it, against the same run driven in one process."""

import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.line import repositories

from gangline.line.kfp.target import drive
from gangline.line.run import run_line
from gangline.spec.site import Site

TASKS = 8
LIMIT_SECONDS = 0.2
TRIES = 3


def main() -> None:
    here = min(seconds_of("here") for _ in range(TRIES))
    there = min(seconds_of("kfp-local") for _ in range(TRIES))
    started = min(start_seconds() for _ in range(TRIES))
    each = (there - here - started) / TASKS
    print(
        f"in this process {here:.2f} s · under kfp's local runner {there:.2f} s, {started:.2f} s of it kfp's own start"
    )
    print(f"overhead {each:.3f} s a task, wanted at most {LIMIT_SECONDS} s: ratio {each / LIMIT_SECONDS:.2f}")
    out = Path(".gangline/benchmarks")
    out.mkdir(parents=True, exist_ok=True)
    found = {"here_seconds": here, "kfp_seconds": there, "start_seconds": started, "task_overhead_seconds": each}
    (out / "kfp_overhead.json").write_text(json.dumps(found) + "\n")


def seconds_of(driving: str) -> float:
    with tempfile.TemporaryDirectory() as name:
        repo = repositories.make_repository(Path(name) / "repo")
        environ = {"HOME": name, "XDG_CONFIG_HOME": f"{name}/config"}
        repositories.settle_inventory(repo)
        run_line(repo, site=Site(), environ=environ, until="build")
        began = time.perf_counter()
        if driving == "here":
            run_line(repo, site=Site(), environ=environ)
        else:
            drive(repo, driving="kfp-local", site=Site(), environ=environ)
        return time.perf_counter() - began


def start_seconds() -> float:
    """Import of kfp and definitions, once a run: a pipeline of no tasks at all."""
    from gangline.line.kfp.compile import compile_line
    from gangline.line.kfp.definitions import find_root

    began = time.perf_counter()
    compile_line(find_root(), "registry.example/line@sha256:" + "a1" * 32, environ={})
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
