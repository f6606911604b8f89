"""Keys of `[optimizer]` with a matrix rule, for `line.md`: what each takes, as the reader of a line says it."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gangline.spec.config.matrix_rule import EXCLUDE, PLAN, RULES, bound_of, matrix_rule_problems


def matrix_rule_section() -> str:
    """Tables of the plan's options and of each rule's, as markdown."""
    rules = ", ".join(f'`"{name}"`' for name in RULES)
    opening = (
        f'`rule` is one of {rules}, or `"package.module:Class"` of the repository; without it there are no keys but'
        " `elementwise`. With it, in addition to the rule's own options:"
    )
    parts = [opening, _table([*_others(), *_rows("muon", PLAN)])]
    for name, options in RULES.items():
        parts += [f"Options of `{name}`:", _table(_rows(name, options))]
    parts.append("[Matrix optimizers](../guides/matrix-optimizers.md#keys) says what they do.")
    return "\n\n".join(parts)


def _others() -> Iterator[tuple[str, str, str]]:
    defaults = {"exclude": f"`{json.dumps(EXCLUDE)}`", "route": "–", "cost": '`"model"`'}
    yield from ((key, _wanted("muon", key), default) for key, default in defaults.items())


def _rows(rule: str, options: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for key, value in options.items():
        is_choice = isinstance(value, tuple) and isinstance(value[0], str)
        default = f'"{value[0]}"' if is_choice else json.dumps(value)
        yield key, _wanted(rule, key), f"`{default}`"


def _wanted(rule: str, key: str) -> str:
    """What a line is answered that gives `key` a value of no kind, with the bounds of a number."""
    wanted = next(matrix_rule_problems({"rule": rule, key: object()})).wanted
    bound = bound_of(rule, key)
    return wanted if bound is None else f"{wanted.partition(',')[0]}, {bound[0]}"


def _table(rows: list[tuple[str, str, str]] | Iterator[tuple[str, str, str]]) -> str:
    lines = [f"| `{key}` | {wanted} | {default} |" for key, wanted, default in rows]
    return "\n".join(["| key | takes | default |", "|---|---|---|", *lines])
