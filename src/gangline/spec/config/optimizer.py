"""The table `[optimizer]` of a line: elementwise rules with their options, and all mistakes of the table.

A task that builds its own optimizer reads the table as it likes; who asks decides whether these rules hold.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gangline.spec.config.matrix_options import Amount
from gangline.spec.config.matrix_rule import matrix_rule_problems
from gangline.spec.config.option_tables import nearest, option_problems, options_of, read_options, unknown_options
from gangline.spec.config.problems import ConfigProblem, FileError, one_of, show

GROUP = "elementwise"


@dataclass(frozen=True, kw_only=True, slots=True)
class AdamwOptions:
    """Options of `torch.optim.AdamW`."""

    lr: Amount = 1e-3
    """Learning rate."""
    betas: tuple[Amount, Amount] = (0.9, 0.999)
    """Decay of the two moments."""
    eps: Amount = 1e-8
    """Added to the root of the second moment."""
    weight_decay: Amount = 0.01
    """Decay of the weights in a step, in units of `lr`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SgdOptions:
    """Options of `torch.optim.SGD`."""

    lr: Amount = 1e-2
    """Learning rate."""
    momentum: Amount = 0.0
    """Decay of the averaged gradient."""
    dampening: Amount = 0.0
    """What the average leaves out of the gradient of a step."""
    weight_decay: Amount = 0.0
    """Share of the weights that is added to the gradient."""
    nesterov: bool = False
    """Whether the gradient of the step counts in addition to the average."""


OPTIONS: dict[str, type[AdamwOptions | SgdOptions]] = {"adamw": AdamwOptions, "sgd": SgdOptions}
"""Options of each rule."""
_DEFAULT = "adamw"
ADAMW_MOMENT_BYTES = 8
"""Bytes of the two float32 moments of a parameter."""


def read_optimizer(table: dict[str, Any]) -> tuple[str, AdamwOptions | SgdOptions]:
    """The elementwise rule of `table`, and its options.

    Raises:
        FileError: A ConfigError with `.problems`, every one of them.
    """
    if problems := list(optimizer_problems(table)):
        raise FileError("line.toml", problems)
    given = table.get(GROUP, {})
    rule = given.get("rule", _DEFAULT)
    return rule, read_options(OPTIONS[rule], given)


def moment_bytes(table: dict[str, Any]) -> int:
    """Bytes that the optimizer of `table` keeps for each parameter: those of AdamW for a table that `read_optimizer`
    refuses, which is meant for the task's own `build_optimizer`."""
    if any(optimizer_problems(table)):
        return ADAMW_MOMENT_BYTES
    _, options = read_optimizer(table)
    if isinstance(options, SgdOptions):
        return 4 if options.momentum else 0
    return ADAMW_MOMENT_BYTES


def optimizer_problems(table: dict[str, Any]) -> Iterator[ConfigProblem]:
    """What ranks would refuse of `table`."""
    yield from matrix_rule_problems(table)
    given = table.get(GROUP, {})
    if not isinstance(given, dict):
        yield ConfigProblem(
            f"optimizer.{GROUP}", "a table", show(given), f'write [optimizer.{GROUP}], rule = "{_DEFAULT}"'
        )
        return
    rule = given.get("rule", _DEFAULT)
    if not isinstance(rule, str) or rule not in OPTIONS:
        near = nearest(str(rule), OPTIONS)
        works = f'did you mean "{near}"?' if near else "build_optimizer of the task makes any other"
        yield ConfigProblem(f"optimizer.{GROUP}.rule", one_of(list(OPTIONS)), show(rule), works)
        return
    key, options = f"optimizer.{GROUP}", OPTIONS[rule]
    yield from unknown_options(rule, given.keys() - {"rule"}, [*options_of(options)], key=key)
    yield from option_problems(options, given, key=key)
