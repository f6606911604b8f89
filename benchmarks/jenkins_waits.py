"""How long a build of Jenkins sleeps on after its gang has ended: with what steps tell of the end, and without.

Pairs of builds at the same time, by the controller of the tests in real time; training is a program that sleeps in
its steps. What is not measured is the start of an agent's pod, as agents are processes here. Arguments: seconds of
training.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.jenkins.controller import jenkins as controller
from tests.jenkins.controller.engine import compile_controller
from tests.line import repositories

from gangline.line.record.runs import list_runs
from gangline.spec.run_flags import stage
from gangline.storage.open import open_store
from gangline.units import parse_time

SECONDS = (50, 81, 110, 150, 200, 260, 330)
STEP_SECONDS = 0.5
PATIENCE_SECONDS = 3600
PROGRAM = """\
import os, pathlib, time
from gangline.train import Program

program = Program().start()
for number in range(1, STEPS + 1):
    time.sleep(SECONDS)
    program.step(loss=1 / number)
pathlib.Path(os.environ["GANGLINE_OUT"], "ended").touch()
"""


def prepared(folder: Path, class_path: str, seconds: int, hidden: str) -> controller.Jenkins:
    steps = int(seconds / STEP_SECONDS)
    program = PROGRAM.replace("STEPS", str(steps)).replace("SECONDS", str(STEP_SECONDS))
    files = {"line.toml": repositories.LINE.replace("steps = 4", f"steps = {steps}"), "answer.py": program}
    repo = repositories.make_repository(folder / "origin", files)
    (folder / "jenkins").mkdir()
    found = controller.Jenkins(
        folder / "jenkins", class_path, repo, folder / "store", milliseconds_a_minute=60_000,
        look_seconds=controller.LOOK_SECONDS, hidden=hidden,
    )  # fmt: skip
    subprocess.run(["git", "clone", "-q", str(repo), str(found.workspace)], check=True)
    repositories.settle_inventory(found.workspace)
    return found


def measured(jenkins: controller.Jenkins, build: controller.Build) -> dict[str, float]:
    """Seconds from the end of the program to the next stage, and looks at its training."""
    result = build.result()
    assert result["result"] == "SUCCESS", build.tail()
    (record,) = list_runs(open_store(f"file:{jenkins.store}"))
    (ended,) = jenkins.workspace.glob(".gangline/gangs/*/**/ended")
    next_stage = parse_time(stage(record, "evaluate").started)
    looks = [words for _, _, words in jenkins.spied if words.startswith("stage train")]
    return {"late_seconds": round(next_stage.timestamp() - ended.stat().st_mtime, 1), "looks": len(looks)}


def pair(folder: Path, class_path: str, seconds: int) -> dict[str, dict[str, float]]:
    """Two builds at the same time: one whose steps pass on what is known of the end, and one whose steps do not."""
    started = {}
    for kind, hidden in (("told", "no-option"), ("not_told", "--ends-in")):
        place = folder / f"{kind}-{seconds}"
        place.mkdir()
        jenkins = prepared(place, class_path, seconds, hidden)
        commit = repositories.git(jenkins.repository, "rev-parse", "HEAD")
        started[kind] = (jenkins, jenkins.build(commit, BRANCH_NAME="main"))
    return {kind: measured(*build) for kind, build in started.items()}


def main() -> int:
    controller.PATIENCE_SECONDS = PATIENCE_SECONDS
    rows = []
    with tempfile.TemporaryDirectory(prefix="gangline-bench-") as name:
        class_path = compile_controller(Path(name) / "classes")
        for seconds in [int(word) for word in sys.argv[1:]] or SECONDS:
            rows.append({"training_seconds": seconds} | pair(Path(name), class_path, seconds))
            print(json.dumps(rows[-1]), flush=True)
    late = {kind: round(mean(row[kind]["late_seconds"] for row in rows), 1) for kind in ("told", "not_told")}
    print(json.dumps(late))
    out = Path(".gangline/benchmarks")
    out.mkdir(parents=True, exist_ok=True)
    (out / "jenkins_waits.json").write_text(json.dumps({"rows": rows, "mean_late_seconds": late}) + "\n")
    return 0 if late["told"] < late["not_told"] else 1


if __name__ == "__main__":
    sys.exit(main())
