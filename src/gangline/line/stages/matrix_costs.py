"""Table of measured matrix updates for a line's model, by a process of its own: `optimizer.cost` reads it."""

import json
import subprocess
import sys
from collections import Counter

from gangline.errors import ConfigError, TrainingError
from gangline.launch.sandbox.environment import passed_on
from gangline.line.stages.optimizer_plan import line_matrices
from gangline.spec.config.line import Line
from gangline.spec.config.matrix_options import RULES
from gangline.spec.config.matrix_rule import read_matrix_rule
from gangline.spec.devices import Inventory
from gangline.spec.plan import Device
from gangline.spec.profile import ModelProfile

TIMEOUT_SECONDS = 600.0
"""Limit on a process that stops at a shape after `measure.matrix_costs.MOST_SECONDS`; one shape may take long."""


def measured_cost_table(line: Line, profile: ModelProfile | None, inventory: Inventory, device: Device) -> str:
    """JSON with seconds of an update for each shape of the model's matrices, on a device of this machine.

    Raises:
        ConfigError: The line has no matrix rule of gangline's own, its matrices are not known, or the devices are
            those of a cluster.
        TrainingError: The process failed.
    """
    table, matrices = read_matrix_rule(line.optimizer), line_matrices(line, profile)
    if table is None or table.rule not in RULES or not matrices:
        raise ConfigError(
            f"--measure-costs: wanted a line with one of the rules {', '.join(RULES)} and a model with matrices, found "
            f"{f'rule {table.rule!r}' if table else 'none'} and {len(matrices)} matrices; "
            "gangline.measure.matrix_costs.cost_table measures a rule of your own"
        )
    if inventory.origin != "this machine":
        raise ConfigError(
            f"--measure-costs: wanted a device of this machine, found {inventory.origin}; run it where ranks will be"
        )
    counts = sorted(Counter(each.shape for each in matrices).items())
    shapes = [[*shape, count] for shape, count in counts]
    optimizer = {name: value for name, value in line.optimizer.items() if name != "cost"}
    process = subprocess.run(
        [sys.executable, "-m", "gangline.measure.matrix_costs"], env=passed_on(), capture_output=True, text=True,
        input=json.dumps({"device": device, "optimizer": optimizer, "shapes": shapes}), check=False,
        timeout=TIMEOUT_SECONDS,
    )  # fmt: skip
    if process.returncode:
        lines = process.stderr.strip().splitlines() or [f"exit {process.returncode}"]
        raise TrainingError(f"updates were not measured: {lines[-1]}")
    return process.stdout
