"""The table `[optimizer]` of a line: elementwise rules with their options, and all mistakes of the table.

A task that builds its own optimizer reads the table as it likes; who asks decides whether these rules hold.
"""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from gangline.spec.config.matrix_rule import matrix_rule_problems
from gangline.spec.config.problems import ConfigProblem, FileError, one_of, shorten, show

GROUP = "elementwise"
OPTIONS: dict[str, dict[str, Any]] = {
    "adamw": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01},
    "sgd": {"lr": 1e-2, "momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0, "nesterov": False},
}
"""Rule to its options and their defaults."""
_DEFAULT = "adamw"
ADAMW_MOMENT_BYTES = 8
"""Bytes of the two float32 moments of a parameter."""


def read_optimizer(table: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The elementwise rule of `table`, and every option of that rule.

    Raises:
        FileError: A ConfigError with `.problems`, every one of them.
    """
    if problems := list(optimizer_problems(table)):
        raise FileError("line.toml", problems)
    given = table.get(GROUP, {})
    rule = given.get("rule", _DEFAULT)
    return rule, {name: _as(default, given.get(name, default)) for name, default in OPTIONS[rule].items()}


def moment_bytes(table: dict[str, Any]) -> int:
    """Bytes that the optimizer of `table` keeps for each parameter: those of AdamW for a table that `read_optimizer`
    refuses, which is meant for the task's own `build_optimizer`."""
    if any(optimizer_problems(table)):
        return ADAMW_MOMENT_BYTES
    rule, options = read_optimizer(table)
    if rule == "sgd":
        return 4 if options["momentum"] else 0
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
        near = _near(str(rule), list(OPTIONS))
        works = f'did you mean "{near}"?' if near else "build_optimizer of the task makes any other"
        yield ConfigProblem(f"optimizer.{GROUP}.rule", one_of(list(OPTIONS)), show(rule), works)
        return
    for name in sorted(given.keys() - OPTIONS[rule].keys() - {"rule"}):
        yield _unknown(name, rule)
    for name, default in OPTIONS[rule].items():
        if name in given:
            yield from _value_problems(f"optimizer.{GROUP}.{name}", given[name], default)


def _unknown(name: str, rule: str) -> ConfigProblem:
    near = _near(name, list(OPTIONS[rule]))
    works = f"did you mean {near}?" if near else f"there are {', '.join(OPTIONS[rule])}"
    return ConfigProblem(f"optimizer.{GROUP}.{shorten(name)}", f"an option of {rule}", "an unknown one", works)


def _near(name: str, known: list[str]) -> str:
    return next(iter(get_close_matches(name[:60], known, n=1, cutoff=0.5)), "")


def _value_problems(key: str, value: Any, default: Any) -> Iterator[ConfigProblem]:
    if isinstance(default, tuple):
        if not isinstance(value, (list, tuple)) or len(value) != len(default) or not all(map(_is_amount, value)):
            yield ConfigProblem(
                key, f"{len(default)} numbers, 0 or more", show(value), f"{list(default)} is the default"
            )
    elif isinstance(default, bool):
        if not isinstance(value, bool):
            yield ConfigProblem(key, "true or false", show(value))
    elif not _is_amount(value):
        yield ConfigProblem(key, "a number, 0 or more", show(value), f"{default:g} is the default")


def _is_amount(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, (int, float)) and value >= 0


def _as(default: Any, value: Any) -> Any:
    if isinstance(default, tuple):
        return tuple(map(float, value))
    return value if isinstance(default, bool) else float(value)
