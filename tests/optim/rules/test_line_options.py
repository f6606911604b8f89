"""Rules as lines name them: options of the table reach the class, which has the same defaults."""

from dataclasses import asdict, fields

import pytest

from gangline.spec.config.matrix_options import RULES
from gangline.spec.config.matrix_rule import read_matrix_rule
from gangline.train.parallel.line_optimizer import make_rule


@pytest.mark.parametrize("name", RULES)
def test_a_line_has_the_options_of_the_class(name):
    rule, options = make_rule(read_matrix_rule({"rule": name})), RULES[name]
    assert asdict(rule) == asdict(options()) == asdict(type(rule)())
    assert {each.name for each in fields(rule)} == {each.name for each in fields(options)}
    assert make_rule(read_matrix_rule({"rule": name, "lr": 7})).lr == 7.0
