"""Drives a line of one rank with a fake tracker, in a process that may be killed: `FOLDER`."""

import sys
from pathlib import Path

from tests.line import repositories
from tests.trackers.fake_tracker import FakeTracker

from gangline.line.stages.run_line import run_line
from gangline.spec.config.site import Site

STEPS = 4
PROGRAM = """\
import json, os, pathlib, time
out = pathlib.Path(os.environ["GANGLINE_OUT"])
(out / "ranks").mkdir(exist_ok=True)
with (out / "ranks" / "0.jsonl").open("a") as events, (out / "metrics.jsonl").open("a") as curve:
    for step in range(1, 5):
        event = {"event": "step", "rank": 0, "generation": 1, "step": step, "mono": 1.0, "time": time.time(),
                 "loss": 3.0 - step / 2, "seconds": 0.01}
        print(json.dumps(event), file=events, flush=True)
        print(json.dumps({"seed": 1, "job": None, "step": step, "loss": 3.0 - step / 2}), file=curve, flush=True)
(out / "result.json").write_text(json.dumps({"role": "train", "final_step": 4}))
time.sleep(0.5)
"""


def prepare(folder: Path, *, line: str = repositories.LINE) -> Path:
    repo = repositories.make_repository(folder / "repo", {"line.toml": line, "answer.py": PROGRAM})
    repositories.settle_inventory(repo)
    FakeTracker.at(folder / "tracker")
    return repo


def site_of(folder: Path) -> Site:
    return Site(track={"ours": FakeTracker(folder / "tracker").table})


def where(folder: Path):
    return {"site": site_of(folder), "environ": {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "config")}}


if __name__ == "__main__":
    FOLDER = Path(sys.argv[1])
    run_line(FOLDER / "repo", **where(FOLDER))
