"""What a search of `examples/digits` is worth: rows HS5 and HS6 of the goal sheet, on functions from a recorded grid.

    python benchmarks/search/worth.py [--seeds 20] [--empty 100]

HS5: a search over rates and widths against all settings of `digits_grid.json`, whose curves are of real trainings
(`record_grid.py`): how far its best is from the best of the grid, how many of its steps it trains, and how many of
those of `study.optimize` with the same sampler, pruner and seed. HS6: a space without effect, with the noise of real
seeds: how often the answer on fresh seeds says BETTER.
"""

import argparse
import json
import sys
import warnings
from pathlib import Path
from random import Random
from statistics import fmean, median

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import optuna  # noqa: E402
from tests.report.records import passed  # noqa: E402
from tests.search.functions import FunctionRuns, MemoryStore, make_driver, make_request  # noqa: E402

from gangline.search.answer import judged  # noqa: E402
from gangline.search.study import _pruner  # noqa: E402
from gangline.spec.search import Dimension  # noqa: E402

TRIALS = 20
METRIC = "eval_loss"


def load():
    grid = json.loads((Path(__file__).parent / "digits_grid.json").read_text())
    rows = {(row["rate"], row["width"]): row for row in grid["rows"]}
    return grid, rows


def search(grid, rows, seed):
    rates, widths = (sorted({key[place] for key in rows}) for place in (0, 1))
    request = make_request(
        metrics=(METRIC,), measured_by="loss", better=("lower",), seed=seed, steps=grid["steps"],
        rungs=tuple(grid["rungs"]), space={"o.lr": Dimension(low=rates[0], high=rates[-1], log=True),
        "m.width": Dimension(choices=tuple(widths))},
    )  # fmt: skip

    def row_of(settings):
        rate = min(rates, key=lambda each: abs(each / settings["o.lr"] - 1))
        return rows[rate, settings["m.width"]]

    def curve(settings, step):
        row = row_of(settings)
        return row[METRIC] if step == grid["steps"] else row["loss"][str(step)]

    runs = FunctionRuns(request, curve=curve)
    view = make_driver(MemoryStore(), request, runs, trials=TRIALS).run()
    return request, view.trials[view.best].values[0], runs.steps, curve


def optimize(request, curve):
    """The same by Optuna alone, in one process; steps trained."""
    steps = 0

    def objective(trial):
        nonlocal steps
        rate, width = request.space["o.lr"], request.space["m.width"]
        settings = {
            "m.width": trial.suggest_categorical("m.width", width.choices),
            "o.lr": trial.suggest_float("o.lr", rate.low, rate.high, log=True),
        }
        before = 0
        for rung in request.rungs:
            steps, before = steps + rung - before, rung
            trial.report(curve(settings, rung), rung)
            if trial.should_prune():
                raise optuna.TrialPruned
        steps += request.steps - before
        return curve(settings, request.steps)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sampler = optuna.samplers.TPESampler(seed=request.seed, constant_liar=True)
    study = optuna.create_study(sampler=sampler, pruner=_pruner(request))
    study.optimize(objective, n_trials=TRIALS)
    return steps


def empty(noise, seed):
    """The verdict of a search where no key matters; values are draws of the noise of real seeds."""
    from dataclasses import replace

    from gangline.line.results.band import learn_band
    from gangline.spec.measurements import Metric

    draw, request = (
        Random(seed),
        make_request(metrics=(METRIC,), measured_by=METRIC, seed=seed, pruner="none", rungs=()),
    )
    values = {}
    runs = FunctionRuns(request, curve=lambda settings, _: values.setdefault(str(settings), draw.choice(noise)))
    view = make_driver(MemoryStore(), request, runs, trials=6).run()

    def record():
        seeds = {str(1000 + place): draw.choice(noise) for place in range(3)}
        band = learn_band(list(seeds.values()), floor_percent=0.1, origin="base")
        metric = Metric(value=fmean(seeds.values()), better="lower", seeds=seeds, band=band)
        return replace(passed(), metrics={METRIC: metric})

    return judged(request, view.trials[view.best], record(), record()).verdict


def worth(grid, rows, seeds):
    """Print HS5."""
    best, all_steps = min(row[METRIC] for row in rows.values()), len(rows) * grid["steps"]
    near, shares, ratios = 0, [], []
    for seed in range(seeds):
        request, value, steps, curve = search(grid, rows, seed)
        accuracy = next(row["accuracy"] for row in rows.values() if row[METRIC] == value)
        near += value <= 1.02 * best
        shares.append(steps / all_steps)
        ratios.append((steps, optimize(request, curve)))
        print(
            f"seed {seed}: {METRIC} {value:.4f} of {best:.4f}, accuracy {accuracy:.4f}, {shares[-1]:.3f} of the steps"
        )
    ours, theirs = (sum(pair[place] for pair in ratios) for place in (0, 1))
    print(f"HS5: within 2 % of the grid's best accuracy {near} of {seeds}; steps {fmean(shares):.3f} of the grid's,")
    print(f"     most {max(shares):.3f}, median {median(shares):.3f}; {ours / theirs:.3f} of study.optimize's")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--empty", type=int, default=100)
    asked = parser.parse_args()
    grid, rows = load()
    if asked.seeds:
        worth(grid, rows, asked.seeds)
    if noise := grid.get("noise_of_seeds"):
        verdicts = [empty(noise, seed) for seed in range(asked.empty)]
        print(f"HS6: {verdicts.count('BETTER')} of {asked.empty} BETTER, {verdicts.count('WORSE')} WORSE")


if __name__ == "__main__":
    main()
