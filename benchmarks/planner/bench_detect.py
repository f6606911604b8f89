"""How soon slow ranks and lossy paths are named, and how often healthy ones are: simulated, from the real detectors.

    python benchmarks/planner/bench_detect.py [--seed 1] [--days 30] [--links 64]

Ranks: 1,024 with 3 % noise a step, one of them 10 % slower from a random step on; then 400 windows without a slow one.
Links: both ends probe each other ten times a second. A probe or its reply crosses the lossy direction once; the first
of the two tests names it. Healthy links lose one in a million each way, so two in a million round trips.
"""

import argparse
import json
import random
import sys
import time
from math import inf, log1p
from statistics import median

from gangline.fabric.probe.links import HEALTHY_LOSS, PROBES_PER_SECOND, LossTest
from gangline.fabric.reliability.step_times import WORK, PeerGroup, WindowTimes
from gangline.fabric.reliability.stragglers import StragglerDetector, window_steps

RANKS, SIGMA, SLOWER = 1024, 0.03, 1.10
BOUND_SECONDS = {1.0: 2.0, 0.01: 30.0, 0.001: 360.0}
"""Longest time until a link is named, by its loss; for a slow rank it is 60."""
REPLY_SECONDS = 1.0
NOISE: dict[int, list[float]] = {}
"""Noise of a window, by its number of steps."""


def means_of_steps(draw: random.Random, steps: int, count: int = 20_000) -> list[float]:
    """Means over a window, without a fifth at either end, of noise of one step: drawn once, sampled by rank."""
    cut, found = steps // 5, []
    for _ in range(count):
        kept = sorted(draw.gauss(0, SIGMA) for _ in range(steps))[cut : steps - cut]
        found.append(sum(kept) / len(kept))
    return found


def window(draw: random.Random, noise: list[float], step_seconds: float, slower: dict[int, float]) -> list[WindowTimes]:
    """One window of all ranks; a step lasts about as long as the slowest rank."""
    own = [0.8 * step_seconds * (1 + each) for each in draw.choices(noise, k=RANKS)]
    for rank, ratio in slower.items():
        own[rank] *= ratio
    longest = max(own)
    return [
        WindowTimes(
            work=dict.fromkeys(WORK, 0.0) | {"forward": each / 3, "backward": 2 * each / 3},
            wait=longest - each,
            samples=8,
        )
        for each in own
    ]


def seconds_to_name(draw: random.Random, step_seconds: float) -> float:
    """Time from the step at which a rank becomes slow, anywhere in a window, to the exchange that names it."""
    steps = window_steps(step_seconds)
    noise, judge = NOISE[steps], StragglerDetector(lambda rank: PeerGroup(0, rank))
    slow, quick = draw.randrange(RANKS), draw.randrange(steps)
    for _ in range(draw.randint(8, 30)):
        judge.add_window(window(draw, noise, step_seconds, {}), steps=steps)
    for count in range(1, 40):
        ratio = SLOWER if count > 1 else 1 + (SLOWER - 1) * (steps - quick) / steps
        new, _ = judge.add_window(window(draw, noise, step_seconds, {slow: ratio}), steps=steps)
        if any(each.rank == slow for each in new):
            return (count * steps - quick + 1) * step_seconds
    return inf


def stragglers(seed: int) -> dict[str, object]:
    draw = random.Random(seed)
    NOISE.update({steps: means_of_steps(draw, steps) for steps in (5, 10)})
    seconds = {step: [seconds_to_name(draw, step) for _ in range(20)] for step in (0.5, 2.0, 5.0)}
    judge, false, judging = StragglerDetector(lambda rank: PeerGroup(0, rank)), 0, []
    for _ in range(400):
        values = window(draw, NOISE[5], 5.0, {})
        start = time.perf_counter()
        false += len(judge.add_window(values, steps=5)[0])
        judging.append(time.perf_counter() - start)
    return {
        "seconds_to_name_median": {str(step): median(each) for step, each in seconds.items()},
        "seconds_to_name_p90": {str(step): sorted(each)[-2] for step, each in seconds.items()},
        "seconds_to_name_most": {str(step): max(each) for step, each in seconds.items()},
        "false_of_400_windows": false,
        "judging_seconds_a_window": round(median(judging), 4),
    }


def probes_to_name(draw: random.Random, loss: float) -> int:
    test = LossTest()
    test.add_arrived(10_000)
    before = test.sent
    while True:
        arrived = 0 if loss >= 1 else int(draw.expovariate(-log1p(-loss)))
        test.add_arrived(arrived)
        if test.add_lost():
            return test.sent - before


def links(seed: int, days: float, count: int) -> dict[str, object]:
    draw, found = random.Random(seed), {}
    for loss in BOUND_SECONDS:
        probes = [min(probes_to_name(draw, loss), probes_to_name(draw, loss)) for _ in range(400)]
        seconds = [(each - 1) / PROBES_PER_SECOND + REPLY_SECONDS for each in probes]
        found[f"{loss:.1%}"] = {"median": round(median(seconds), 2), "p90": round(sorted(seconds)[360], 2)}
    false, losses = 0, 0
    for _ in range(2 * count):
        test = LossTest()
        while test.sent < days * 86_400 * PROBES_PER_SECOND:
            test.add_arrived(int(draw.expovariate(2 * HEALTHY_LOSS)))
            losses += 1
            if test.add_lost():
                false, test = false + 1, LossTest(sent=test.sent)
    return {"seconds_to_name": found, "days": days, "links": count, "healthy_losses": losses, "false_alarms": false}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--days", type=float, default=30.0)
    parser.add_argument("--links", type=int, default=64)
    options = parser.parse_args()
    ranks, paths = stragglers(options.seed), links(options.seed, options.days, options.links)
    named = paths["seconds_to_name"]
    holds = {
        "slow rank in 60 s": max(ranks["seconds_to_name_median"].values()) <= 60,
        "no false rank in 400 windows": ranks["false_of_400_windows"] == 0,
        "at most one false link": paths["false_alarms"] <= 1,
        **{f"{loss:.1%} of probes": named[f"{loss:.1%}"]["median"] <= most for loss, most in BOUND_SECONDS.items()},
    }
    print(json.dumps({"seed": options.seed, "ranks": RANKS, **ranks, **paths, "holds": holds}, indent=2))
    return 0 if all(holds.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
