"""What the line adds to its stages: ten that do nothing, driven with record, lease and events, against a bare chain.

Beside it the real stages of a run that finds all of its work done. Bound: 30 ms a stage in process, for both.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.line.repositories import make_repository, settle_inventory

from gangline.line.record.context import StageResult
from gangline.line.stages import executor
from gangline.line.stages.run_line import run_line
from gangline.spec.config.site import Site
from gangline.spec.record import STAGES

ROUNDS = 15
BOUND_SECONDS = 0.030


def nothing(_):
    return StageResult(message="nothing to do")


def timed(function) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="gangline-bench-") as folder:
        repo = make_repository(Path(folder) / "repo")
        environ = {"HOME": folder, "XDG_CONFIG_HOME": folder}

        def run(seed: int, parity: float = 1e-4):
            overrides = [f"train.seed={seed}", f"gate.parity={parity}"]
            settle_inventory(repo, overrides=overrides)
            return lambda: run_line(repo, site=Site(), environ=environ, overrides=overrides)

        run(1)()
        bare = median(timed(lambda: [nothing(None) for _ in STAGES]) for _ in range(ROUNDS))
        taken = median(timed(run(1, 0.5 + each / 100)) for each in range(ROUNDS))
        repeated = median(timed(run(1)) for _ in range(ROUNDS))
        with mock.patch.object(executor, "STAGE_FUNCTIONS", dict.fromkeys(STAGES, nothing)):
            driven = median(timed(run(2 + each)) for each in range(ROUNDS))
    result = {
        "driven_seconds_per_stage": round((driven - bare) / len(STAGES), 5),
        "taken_seconds_per_stage": round(taken / len(STAGES), 5),
        "run_that_is_over_seconds": round(repeated, 5),
        "bare_seconds_per_stage": bare / len(STAGES),
        "bound_seconds_per_stage": BOUND_SECONDS,
    }
    print(json.dumps(result, indent=1))
    out = Path(".gangline/benchmarks")
    out.mkdir(parents=True, exist_ok=True)
    (out / "line_overhead.json").write_text(json.dumps(result) + "\n")
    worst = max(result["driven_seconds_per_stage"], result["taken_seconds_per_stage"])
    return 0 if worst <= BOUND_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
