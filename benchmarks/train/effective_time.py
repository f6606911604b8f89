"""Effective time under steady kills, against the same gang left alone, in one run.

Two gangs of the same task work the same time; in one a rank is killed every so often. Effective time is the share of
the held seconds that went into steps that count, by the keeper's own ledger, from the first step on: what imports cost
once says nothing about faults. `--every` and `--seconds` make it as long as the goal sheet wants it.
"""

import argparse
import json
import random
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gang import NAME, RANKS, launch

from gangline.errors import UsageError
from gangline.faults.process_faults import kill_rank, last_step
from gangline.launch.local import LocalLauncher
from gangline.spec.plan import CheckpointPolicy, ProgramSpec, Recovery

STEP_SECONDS = 0.1
TARGET = 0.9
"""Part of the unbroken gang's share that is left at a kill every 120 s."""
WORKING = ("compute", "data", "wait", "bubble")
STARTING = ("start", "gather")
TASK = f"""
import time
from gangline.train import Loss
from small import Small


class Task(Small):
    def loss(self, outputs, batch):
        time.sleep({STEP_SECONDS})
        return Loss(total=outputs.square().sum(), weight=outputs.numel())
"""


@dataclass(frozen=True)
class Share:
    effective: float
    """Share of the held seconds after the start."""
    restarts: int
    ledger: dict[str, float]


def main() -> None:
    asked = _arguments()
    shares = {}
    for name, every in (("unbroken", None), ("killed", asked.every)):
        with tempfile.TemporaryDirectory() as folder:
            shares[name] = measure(Path(folder), every=every, seconds=asked.seconds)
    for name, share in shares.items():
        rows = "  ".join(f"{cause} {seconds:.1f}" for cause, seconds in sorted(share.ledger.items()) if seconds >= 0.05)
        print(f"{name:10} effective {share.effective:.4f}   restarts {share.restarts}   {rows}")
    ratio = shares["killed"].effective / shares["unbroken"].effective
    aimed = asked.every >= 120
    print(f"ratio killed : unbroken   {ratio:.4f}   " + (f"target >= {TARGET}" if aimed else "no target at this rate"))
    out = Path(".gangline/benchmarks")
    out.mkdir(parents=True, exist_ok=True)
    found = {name: {"effective": share.effective, "ledger": share.ledger} for name, share in shares.items()}
    result = {"every": asked.every, "seconds": asked.seconds, "shares": found, "ratio": ratio}
    result |= {"target": TARGET, "met": ratio >= TARGET} if aimed else {}
    (out / "effective_time.json").write_text(json.dumps(result, indent=1))


def measure(folder: Path, *, every: float | None, seconds: float) -> Share:
    """A gang from its first step on, for so long; a seeded rank is killed every so often."""
    launcher, home, dice = _launch(folder), folder / "gangs" / NAME, random.Random(1)
    while (last_step(home, 0) or 0) < 1:
        time.sleep(0.01)
    end = time.monotonic() + seconds
    while every is not None and time.monotonic() + every < end:
        time.sleep(every)
        with suppress(UsageError):  # it is between two generations
            kill_rank(home, dice.randrange(RANKS))
    time.sleep(max(0.0, end - time.monotonic()))
    launcher.cancel(NAME, reason="long enough", save=True)
    found = launcher.collect(NAME)
    held = found.allocated_seconds - sum(found.ledger.get(cause, 0.0) for cause in STARTING)
    working = sum(found.ledger.get(cause, 0.0) for cause in WORKING)
    return Share(effective=working / held, restarts=found.restarts, ledger=found.ledger)


def _launch(folder: Path) -> LocalLauncher:
    return launch(
        folder, {"model.py": TASK}, program=ProgramSpec(task="model:Task"), steps=1_000_000,
        checkpoint=CheckpointPolicy(every=20), recovery=Recovery(max_events=1000),
    )  # fmt: skip


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--every", type=float, default=20.0, help="seconds between kills (default 20)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each gang works (default 60)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
