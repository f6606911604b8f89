"""What kfp's local runner adds to a task: a run of eight tasks under it, against the same run driven in one process.

Processor seconds are printed next to those of the wall: they say the same on a machine that is shared. To see what a
task imports: `_KFP_RUNTIME=true python -X importtime -c "import kfp.dsl.executor_main, gangline.kfp.run_stage"`.
"""

import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.line import repositories

from gangline.kfp.driver import drive
from gangline.line.stages.run_line import run_line
from gangline.spec.config.site import Site

TASKS = 8
LIMIT_SECONDS = 0.2
TRIES = 3


@dataclass(order=True)
class Took:
    """What this process and all that it waited for took; keepers of gangs are not among them."""

    cpu: float = 0.0
    wall: float = 0.0

    def __str__(self) -> str:
        return f"{self.wall:.2f} s ({self.cpu:.2f} s of a processor)"


def main() -> None:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installation is compiled: else each task compiles its modules
    here = min(run_of("here") for _ in range(TRIES))
    there = min(run_of("kfp-local") for _ in range(TRIES))
    started = min(start() for _ in range(TRIES))
    each = Took(wall=(there.wall - here.wall - started.wall) / TASKS, cpu=(there.cpu - here.cpu - started.cpu) / TASKS)
    print(f"in this process {here} · under kfp's local runner {there}, of which kfp's own start {started}")
    print(
        f"a task costs {each.wall:.3f} s more, {each.cpu:.3f} s of a processor;"
        f" wanted at most {LIMIT_SECONDS} s: ratio {each.wall / LIMIT_SECONDS:.2f}"
    )
    out = Path(".gangline/benchmarks")
    out.mkdir(parents=True, exist_ok=True)
    found = {"here": asdict(here), "kfp": asdict(there), "start": asdict(started), "task_overhead": asdict(each)}
    (out / "kfp_overhead.json").write_text(json.dumps(found) + "\n")


def run_of(driving: str) -> Took:
    with tempfile.TemporaryDirectory() as name:
        repo = repositories.make_repository(Path(name) / "repo")
        environ = {"HOME": name, "XDG_CONFIG_HOME": f"{name}/config"}
        repositories.settle_inventory(repo)
        run_line(repo, site=Site(), environ=environ, until="build")
        with taking() as took:
            if driving == "here":
                run_line(repo, site=Site(), environ=environ)
            else:
                drive(repo, driving="kfp-local", site=Site(), environ=environ)
        return took


def start() -> Took:
    """Import of kfp and definitions, once a run: a pipeline that is compiled and not run."""
    from gangline.kfp.compiler import compile_line, find_root

    with taking() as took:
        compile_line(find_root(), "registry.example/line@sha256:" + "a1" * 32, environ={})
    return took


@contextmanager
def taking() -> Iterator[Took]:
    took, cpu, wall = Took(), processor_seconds(), time.perf_counter()
    yield took
    took.cpu, took.wall = processor_seconds() - cpu, time.perf_counter() - wall


def processor_seconds() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


if __name__ == "__main__":
    main()
