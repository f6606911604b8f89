"""Trains every setting of a grid of `examples/digits` and writes what a search is measured on: loss at rungs, metrics.

    python benchmarks/search/record_grid.py > benchmarks/search/digits_grid.json     # 5 minutes of one core

One process trains each setting with the example's own model, data, loss and schedule; the line would spend most of the
time on starting gangs.
"""

import json
import sys
from pathlib import Path
from statistics import fmean

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "digits"))
from model import Digits

STEPS, BATCH, WARMUP = 400, 64, 10
RUNGS = (15, 45, 135)
RATES = [round(10 ** (-4 + 3 * place / 15), 6) for place in range(16)]
WIDTHS = (8, 16, 32)
OF_SEEDS, SEEDS = (0.0063096, 8), 20
"""Setting that is trained with so many seeds, for the noise of a space without effect."""
NOISE = 1.2
"""Noise of the pictures: with the example's 0.3 most settings find every digit."""


def load(task, split):
    data = task.build_data(split, {"model": {"noise": NOISE}})
    rows = [data[index] for index in range(len(data))]
    return {key: torch.stack([row[key] for row in rows]) for key in rows[0]}


def train(task, train_set, test_set, rate, width, seed=1):
    torch.manual_seed(seed)
    model = task.build_model({"width": width})
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    order = torch.randperm(len(train_set["digits"]), generator=torch.Generator().manual_seed(seed))
    losses = []
    for step in range(STEPS):
        scale = min((step + 1) / WARMUP, (STEPS - step) / (STEPS - WARMUP))
        for group in optimizer.param_groups:
            group["lr"] = rate * scale
        rows = order[torch.arange(step * BATCH, (step + 1) * BATCH) % len(order)]
        batch = {key: value[rows] for key, value in train_set.items()}
        result = task.loss(model(batch["pictures"]), batch)
        loss = result.total / result.weight
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        outputs = model(test_set["pictures"])
        right = (outputs.argmax(dim=1) == test_set["digits"]).float().mean().item()
        result = task.loss(outputs, test_set)
    at = {rung: fmean(losses[rung - max(1, rung // 8) : rung]) for rung in (*RUNGS, STEPS)}
    return {
        "rate": rate, "width": width, "loss": {step: round(value, 5) for step, value in at.items()},
        "accuracy": round(right, 5), "eval_loss": round((result.total / result.weight).item(), 5),
    }  # fmt: skip


def main():
    torch.set_num_threads(1)
    task = Digits()
    train_set, test_set = load(task, "train"), load(task, "test")
    rows = [train(task, train_set, test_set, rate, width) for rate in RATES for width in WIDTHS]
    noise = [train(task, train_set, test_set, *OF_SEEDS, seed)["eval_loss"] for seed in range(1, SEEDS + 1)]
    json.dump(
        {
            "steps": STEPS,
            "rungs": RUNGS,
            "noise": NOISE,
            "torch": torch.__version__,
            "rows": rows,
            "noise_of_seeds": noise,
        },
        sys.stdout,
        indent=0,
    )


if __name__ == "__main__":
    main()
