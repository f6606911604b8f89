"""What trackers that hang and fail cost a training: p99 of its steps with them over p99 without, gangs in turn.

One rank does steps of fixed arithmetic and reports each; the site has no tracker, or one that
never answers, one that says 503 and one that takes two seconds a call. Bound: 1.02.
"""

import json
import sys
import tempfile
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.line.repositories import LINE, make_repository, settle_inventory
from tests.trackers.fake_tracker import FakeTracker

from gangline.line.stages.run_line import run_line
from gangline.spec.config.site import Site
from gangline.trackers.stored_run import stored_events

ROUNDS = 4
STEPS = 800
BOUND = 1.02
PROGRAM = """\
import json, os, pathlib, time
out = pathlib.Path(os.environ["GANGLINE_OUT"])
(out / "ranks").mkdir(exist_ok=True)
events = (out / "ranks" / "0.jsonl").open("a")
for step in range(1, STEPS + 1):
    began, total = time.perf_counter(), 0
    for number in range(30_000):
        total += number * number
    seconds = time.perf_counter() - began
    event = {"event": "step", "rank": 0, "generation": 1, "step": step, "mono": 1.0, "time": time.time(),
             "loss": 1.0 / step, "learning_rate": 0.1, "gradient_norm": 1.0, "seconds": seconds}
    print(json.dumps(event), file=events, flush=True)
(out / "result.json").write_text(json.dumps({"role": "train", "final_step": STEPS}))
"""


def p99(seconds: list[float]) -> float:
    return sorted(seconds)[len(seconds) * 99 // 100]


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="gangline-bench-") as name:
        folder = Path(name)
        files = {"line.toml": LINE, "answer.py": PROGRAM.replace("STEPS", str(STEPS))}
        repo, environ = make_repository(folder / "repo", files), {"HOME": name, "XDG_CONFIG_HOME": name}
        trackers = {}
        for tracker, way in (("silent", "hangs"), ("failing", "fails"), ("slow", "slow 2")):
            made = FakeTracker.at(folder / tracker)
            made.goes(way)
            trackers[tracker] = made.table

        def train(seed: int, site: Site) -> float:
            overrides = [f"train.seed={seed}"]
            settle_inventory(repo, overrides=overrides)
            record = run_line(repo, site=site, environ=environ, overrides=overrides)
            from gangline.storage.site_paths import open_site_store

            events = stored_events(open_site_store(repo, site, environ), record)
            return p99([event["seconds"] for event in events if event["event"] == "step"])

        train(1, Site())
        pairs = []
        for number in range(ROUNDS):
            sites = [Site(), Site(track=trackers)][:: 1 if number % 2 else -1]
            found = {bool(site.track): train(2 + 2 * number + place, site) for place, site in enumerate(sites)}
            pairs.append((found[True], found[False]))
    ratios = sorted(with_trackers / without for with_trackers, without in pairs)
    result = {
        "p99_ratio": round(median(ratios), 4), "ratios": [round(ratio, 3) for ratio in ratios],
        "p99_seconds_without": round(median(without for _, without in pairs), 6), "bound": BOUND,
    }  # fmt: skip
    print(json.dumps(result, indent=1))
    out = Path(".gangline/benchmarks")
    out.mkdir(parents=True, exist_ok=True)
    (out / "trackers_outage.json").write_text(json.dumps(result) + "\n")
    return 0 if result["p99_ratio"] <= BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
