"""Rules as lines name them: options and defaults of the table are those of the classes."""

from dataclasses import fields

import pytest

from gangline.spec.config.matrix_rule import RULES, MatrixRuleTable
from gangline.train.parallel.line_optimizer import make_rule


@pytest.mark.parametrize("name", RULES)
def test_a_line_has_the_options_of_the_class(name):
    rule, options = make_rule(MatrixRuleTable(rule=name)), RULES[name]
    assert options.keys() == {each.name for each in fields(rule)}
    for option, default in options.items():
        words = isinstance(default, tuple) and isinstance(default[0], str)
        own = getattr(rule, option)
        assert own == (default[0] if words and own is not None else None if words else default)
