"""The table of measured updates: what a line reads back."""

import json

import pytest
import torch

from gangline.measure.matrix_costs import cost_table
from gangline.optim.plan.optimizer_plan import PlanOptions
from gangline.optim.plan.work import device_curve
from gangline.optim.rules.muon import Muon
from gangline.optim.rules.shampoo import Shampoo
from gangline.optim.rules.soap import Soap
from gangline.spec.config.cost_table import cost_table_problems

SHAPES = [(16, 24), (24, 16), (96, 96)]


@pytest.mark.parametrize("rule", [Muon(dtype="float32", kernel="gram"), Shampoo(), Soap()])
def test_each_shape_is_timed_once_and_plans_find_it(rule):
    table = json.loads(json.dumps(cost_table(rule, SHAPES, torch.device("cpu"))))
    assert list(cost_table_problems(table)) == []
    assert [(row["rows"], row["columns"]) for row in table["rows"]] == [(16, 24), (96, 96)]
    curve = device_curve("cpu", table)
    assert all(curve.measured(rule.spec, shape) for shape in SHAPES)
    assert all(row["seconds"] > 0 for row in table["rows"])
    assert (table["rows"][1]["refresh_seconds"] > 0) == (rule.spec.refresh_every > 1)


@pytest.mark.parametrize("rule", [Muon(dtype="float32"), Soap()])
def test_matrices_that_are_updated_together_are_timed_together_as_far_as_c_max_allows(rule):
    table = cost_table(rule, SHAPES * 2, torch.device("cpu"), PlanOptions(batch=3, c_max_bytes=4 * 96 * 96))
    assert list(cost_table_problems(table)) == []
    found = sorted((row["rows"], row["batch"]) for row in table["rows"])
    assert found == [(16, 1), (16, 3), (96, 1)]
