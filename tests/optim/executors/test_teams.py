"""Updates that a team of ranks computes: those of one rank to rounding, the same bits on all ranks, each once."""

import pytest
import torch
from tests.optim.executors.layouts import Whiten, give_gradients, make, stepped
from tests.train.parallel.compress.ranks import on_ranks

from gangline.errors import ConfigError
from gangline.optim.plan.costs import DeviceCurve
from gangline.optim.rules.matrix_rule import MatrixRule

SHAPES = {"tall": (95, 20), "wide": (24, 80), "small": (6, 5), "row": (1, 9)}
SHARED = {"shapes": SHAPES, "team": "auto", "device": DeviceCurve(launch_seconds=0.0, knee=0.0)}


def stepped_with_teams(layout, rule):
    """As `stepped`, and the teams of the plan; one step has no gradient of the largest matrix on any rank."""
    parameters, optimizer = make(layout, rule=rule, **SHARED)
    for step in range(4):
        give_gradients(parameters, step, missing=["tall"] if step == 2 else [])
        optimizer.step()
    executor = optimizer.executors[0]
    return {
        "parameters": {name: each.detach().clone() for name, each in parameters.items()},
        "teams": [each.team for each in executor.plan.matrices], "computed": executor.computed,
        "loads": sum(executor.own_loads.values()), "planned": executor.plan.loads,
        "sent": executor.traffic["copies"].sent_bytes,
    }  # fmt: skip


def alone(rule):
    parameters, optimizer = make("local", rule=rule, shapes=SHAPES)
    for step in range(4):
        give_gradients(parameters, step, missing=["tall"] if step == 2 else [])
        optimizer.step()
    return parameters


@pytest.mark.parametrize(
    ("size", "layout", "rule"), [(4, "copies", "muon"), (4, "owned", "gram"), (2, "owned", "muon")]
)
def test_a_team_trains_what_one_rank_does(size, layout, rule):
    found = on_ranks(size, stepped_with_teams, layout, rule)
    assert max(len(team) for team in found[0]["teams"]) > 1
    assert sum(each["computed"] for each in found) == 4 * len(SHAPES) - 1
    assert [each["loads"] for each in found] == pytest.approx(found[0]["planned"])
    for name, wanted in alone(rule).items():
        assert torch.allclose(found[0]["parameters"][name], wanted, rtol=0, atol=2e-6), name
        assert all(torch.equal(each["parameters"][name], found[0]["parameters"][name]) for each in found)


def test_a_rule_that_says_more_than_it_has_is_named():
    with pytest.raises(ConfigError, match=r"Whiten has no compute_shared; use team = 'off'"):
        MatrixRule.compute_shared(Whiten(), torch.zeros(2, 2), {}, lambda tensor: tensor)


def test_other_rules_and_geometries_have_no_teams():
    for options in ({"rule": "shampoo"}, {"rule": "muon", "geometry": "permuted"}):
        with pytest.raises(ConfigError, match="needs Muon and geometry 'owner'"):
            stepped("local", 1, {"team": "auto", **options})
