"""What a line says of its matrix rule, refused where ranks would refuse it."""

import pytest

from gangline.errors import ConfigError
from gangline.optim.plan.optimizer_plan import PlanOptions
from gangline.optim.rules.muon import Muon
from gangline.optim.rules.shampoo import Shampoo
from gangline.optim.rules.soap import Soap
from gangline.spec.config.matrix_rule import matrix_rule_problems, read_matrix_rule


@pytest.mark.parametrize(
    ("rule", "key", "value", "wanted"),
    [
        ("soap", "refresh_every", 0, "1 or more"), ("shampoo", "refresh_every", 0, "1 or more"),
        ("muon", "ns_steps", 0, "from 1 to 99"), ("muon", "ns_steps", 100, "from 1 to 99"),
        ("soap", "betas", [1.5, 2.0], "from 0 to below 1"), ("shampoo", "betas", [0.9, 1], "from 0 to below 1"),
        ("soap", "shampoo_beta", 1.0, "from 0 to below 1"), ("soap", "largest_side", 0, "1 or more"),
        ("shampoo", "eps", 0, "above 0"), ("muon", "alpha", 1.5, "from 0 to 1"), ("muon", "batch", 0, "1 or more"),
        ("muon", "element_bytes", 3, "one of 2, 4, 8"), ("muon", "bucket_elements", 0, "1 or more"),
        ("muon", "c_max_bytes", 0, "1 or more"),
    ],
)  # fmt: skip
def test_a_number_that_ranks_refuse_is_refused_by_its_key(rule, key, value, wanted):
    table = {"rule": rule, key: value}
    found = [*matrix_rule_problems(table)]
    assert [(each.key, each.wanted) for each in found] == [(f"optimizer.{key}", wanted)]
    assert read_matrix_rule(table) is None
    classes = {"muon": Muon, "shampoo": Shampoo, "soap": Soap}
    with pytest.raises(ConfigError, match=f"optimizer.{key}: wanted {wanted}"):
        (PlanOptions if hasattr(PlanOptions, key) else classes[rule])(**{key: value})


@pytest.mark.parametrize("other", [{"overlap": "forward"}, {"team": "auto"}])
def test_copies_that_repeat_all_share_nothing(other):
    table = {"rule": "muon", "copies": "repeat", **other}
    assert [each.key for each in matrix_rule_problems(table)] == ["optimizer.copies"]
    with pytest.raises(ConfigError, match=r"^optimizer\.copies: with copies = \"repeat\" each copy computes all"):
        PlanOptions(copies="repeat", **other)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_a_number_that_is_none_is_refused(value):
    assert [each.key for each in matrix_rule_problems({"rule": "muon", "lr": value})] == ["optimizer.lr"]


def test_a_class_of_torch_is_not_a_matrix_rule():
    (found,) = matrix_rule_problems({"rule": "torch.optim:Muon"})
    assert found.key == "optimizer.rule"
    assert 'did you mean "muon"?' in str(found)
    assert not [*matrix_rule_problems({"rule": "torchlike.rules:Muon"})]
