"""The matrix rule of a line, `[optimizer]`: options of the rule, parameters that it gets, options of its plan."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from math import inf
from typing import Any

from gangline.spec.config.cost_table import KEY, MODEL, cost_table_problems
from gangline.spec.config.problems import ConfigProblem, one_of, shorten, show

RULES: dict[str, dict[str, Any]] = {
    "muon": {
        "lr": 1e-3, "weight_decay": 0.1, "momentum": 0.95, "nesterov": True,
        "ns_coefficients": (3.4445, -4.775, 2.0315), "eps": 0.0, "ns_steps": 5,
        "adjust_lr_fn": ("original", "match_rms_adamw", "spectral_unclamped"),
        "kernel": ("standard", "symmetric", "gram"), "dtype": ("bfloat16", "float32"),
    },
    "shampoo": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-4, "weight_decay": 0.01, "refresh_every": 10},
    "soap": {
        "lr": 3e-3, "betas": (0.95, 0.95), "shampoo_beta": 0.95, "eps": 1e-8, "weight_decay": 0.01,
        "refresh_every": 10, "largest_side": 10_000,
    },
}  # fmt: skip
"""Rule to its options and their defaults; of words all, the default first."""
PLAN: dict[str, Any] = {
    "alpha": 1.0, "bucket_elements": 400_000_000, "owner_memory_bytes": 0, "c_max_bytes": 1 << 30,
    "geometry": ("auto", "contiguous", "permuted", "owner"), "oversize": ("own_slot", "error"),
    "refresh": ("staggered", "together"),
    "copies": ("share", "repeat"), "team": ("off", "auto"), "overlap": ("off", "forward"), "batch": 1,
    "element_bytes": 4,
}  # fmt: skip
"""Options of the plan, as `optim.plan` has them."""
Bound = tuple[str, Callable[[float], bool]]
_ONE_OR_MORE: Bound = ("1 or more", lambda value: value >= 1)
_BELOW_ONE: Bound = ("from 0 to below 1", lambda value: 0 <= value < 1)
_BOUNDS: dict[str, Bound] = {
    "ns_steps": ("from 1 to 99", lambda value: 1 <= value <= 99), "betas": _BELOW_ONE, "shampoo_beta": _BELOW_ONE,
    "shampoo.eps": ("above 0", lambda value: value > 0), "alpha": ("from 0 to 1", lambda value: 0 <= value <= 1),
    "element_bytes": ("2, 4 or 8", lambda value: value in (2, 4, 8)),
    **dict.fromkeys(("refresh_every", "largest_side", "batch", "bucket_elements", "c_max_bytes"), _ONE_OR_MORE),
}  # fmt: skip
"""Bounds of options, those that the classes of `optim` have on ranks; `rule.option` where another rule has unlike
ones."""
OVERLAP_WHILE_LIVE = (
    'optimizer.overlap: "forward" leaves a replica without a whole state of one step until its next forward pass ends, '
    'and train.recovery.mode = "live" continues from such states; "off", or recovery.mode = "restart", works'
)
"""Planner and ranks refuse it with the same message."""
REPEATS_ALONE = (
    'with copies = "repeat" each copy computes all updates itself, so that overlap = "forward" and team = "auto" have '
    'nothing to share; leave them out, or use "share"'
)
OWNER_STATE_WHILE_LIVE = (
    'train.recovery.mode: "live" needs the whole state on every replica, and rule {rule!r} keeps state of a matrix on '
    'one rank; optimizer.copies = "repeat", recovery.mode = "restart", or rule = "muon" works'
)
"""Planner and ranks refuse it with the same message."""
OWNER_STATE_RULES = ("shampoo", "soap")
"""Those of `RULES` that keep state of a matrix on one rank."""
REPEATS_UNDER_ZERO1 = (
    'optimizer.copies: "repeat" keeps all state on every copy, and zero1 deals it out to them; "ddp", or copies = '
    '"share" works'
)
"""Planner and ranks refuse it with the same message."""
EXCLUDE = ("embed", "head", "router", "norm")
"""What `exclude` is where a line has none."""
_ROUTE: dict[str, Any] = {
    "match": "", "kind": ("matrix", "elementwise"),
    "split": ("none", "gate_up", "gate_up_interleaved", "qkv", "qkv_by_group", "stack"),
    "heads": 0, "kv_heads": 0, "head_dim": 0,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class MatrixRuleTable:
    """What a line says of its matrix rule."""

    rule: str
    """A name of `RULES`, or `package.module:Class` of the model's repository."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Given ones, for the class of the rule."""
    exclude: tuple[str, ...] = EXCLUDE
    """Parameters are updated by the elementwise rule where a part of their name begins with one of these."""
    routes: tuple[Mapping[str, Any], ...] = ()
    """Keys of each: `match`, a pattern of names, and some of `kind`, `split`, `heads`, `kv_heads`, `head_dim`."""
    plan: Mapping[str, Any] = field(default_factory=dict)
    """Given ones of `PLAN`."""
    cost: Mapping[str, Any] | None = None
    """Measured seconds as `spec.config.cost_table` checks them; None: plans go by operations."""

    @property
    def overlaps(self) -> bool:
        """Updates travel to copies during the next forward pass."""
        return self.plan.get("overlap") == "forward"

    @property
    def repeats(self) -> bool:
        """Each copy of a matrix computes its update, and keeps all of its state."""
        return self.plan.get("copies") == "repeat"


def read_matrix_rule(table: Mapping[str, Any]) -> MatrixRuleTable | None:
    """The matrix rule of a table without problems; None: it has none."""
    rule = table.get("rule")
    if rule is None:
        return None
    known = RULES.get(rule, {})
    own = {"rule", "exclude", "route", "elementwise", "cost", *PLAN}
    options = {name: _as(known.get(name), value) for name, value in table.items() if name not in own or name in known}
    return MatrixRuleTable(
        rule=rule, options=options, exclude=tuple(table.get("exclude", EXCLUDE)),
        routes=tuple(dict(each) for each in table.get("route", ())),
        plan={name: _as(PLAN[name], table[name]) for name in PLAN if name in table and name not in known},
        cost=table["cost"] if isinstance(table.get("cost"), Mapping) else None,
    )  # fmt: skip


def matrix_rule_problems(table: Mapping[str, Any]) -> Iterator[ConfigProblem]:
    """What ranks would refuse of `table`, `elementwise` apart."""
    rule, keys = table.get("rule"), sorted(table.keys() - {"elementwise", "rule"})
    if rule is None:
        for key in keys:
            works = 'write rule = "muon" with it' if key in {*PLAN, *RULES["muon"], "exclude", "route", "cost"} else ""
            works = works or "write [optimizer.elementwise]"
            yield ConfigProblem(f"optimizer.{shorten(key)}", "elementwise, or the options of a rule", "no rule", works)
        return
    if not isinstance(rule, str) or (rule not in RULES and not _is_class(rule)):
        near = _near(str(rule).rpartition(":")[2].lower(), RULES)
        works = f'did you mean "{near}"?' if near else '"package.module:Class" names a rule of your own'
        yield ConfigProblem("optimizer.rule", one_of(list(RULES)), show(rule), works)
        return
    yield from _copies_problems(table)
    options: dict[str, Any] = {**PLAN, **RULES.get(rule, {})}
    for key in keys:
        if key == "exclude":
            yield from _exclude_problems(table[key])
        elif key == "route":
            yield from _route_problems(table[key])
        elif key == "cost":
            yield from _cost_problems(table[key])
        elif key in options:
            problems = [*_value_problems(f"optimizer.{key}", table[key], options[key])]
            yield from problems or _bound_problems(rule, key, table[key])
        elif rule in RULES:
            near = _near(key, {*options, "exclude", "route", "cost"})
            works = f"did you mean {near}?" if near else f"there are {', '.join(sorted(options))}"
            yield ConfigProblem(f"optimizer.{shorten(key)}", f"an option of {rule}", "an unknown one", works)


def _copies_problems(table: Mapping[str, Any]) -> Iterator[ConfigProblem]:
    if table.get("copies") == "repeat" and (table.get("overlap") == "forward" or table.get("team") == "auto"):
        yield ConfigProblem("optimizer.copies", '"share"', '"repeat"', REPEATS_ALONE)


def _is_class(rule: str) -> bool:
    """Is it a class of the repository? torch has no `MatrixRule`."""
    module, separator, name = rule.partition(":")
    return (
        bool(separator)
        and module.partition(".")[0] != "torch"
        and name.isidentifier()
        and all(part.isidentifier() for part in module.split("."))
    )


def _near(name: str, known: Any) -> str:
    return next(iter(get_close_matches(name[:60], sorted(known), n=1, cutoff=0.5)), "")


def _exclude_problems(value: Any) -> Iterator[ConfigProblem]:
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        yield ConfigProblem(
            "optimizer.exclude", "a list of parts of names", show(value), f"{list(EXCLUDE)} is the default"
        )


def _cost_problems(value: Any) -> Iterator[ConfigProblem]:
    if isinstance(value, Mapping):
        yield from cost_table_problems(value)
    elif value != MODEL:
        works = f'"{MODEL}" counts operations; gangline plan --measure-costs FILE writes a table to commit'
        yield ConfigProblem(KEY, f'"{MODEL}", or a file of the commit', show(value), works)


def _route_problems(value: Any) -> Iterator[ConfigProblem]:
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        yield ConfigProblem(
            "optimizer.route", "tables", show(value), 'write [[optimizer.route]], match = "*.fc1.weight"'
        )
        return
    for number, route in enumerate(value):
        key = f"optimizer.route[{number}]"
        if not isinstance(route.get("match"), str) or not route["match"]:
            works = 'match = "layers.*.mlp.fc1.weight" works'
            yield ConfigProblem(f"{key}.match", "a pattern of names", show(route.get("match", "")), works)
        for name in sorted(route.keys() - {"match"}):
            if name not in _ROUTE:
                yield ConfigProblem(f"{key}.{shorten(name)}", one_of(list(_ROUTE)), "an unknown key")
            else:
                yield from _value_problems(f"{key}.{name}", route[name], _ROUTE[name])


def _value_problems(key: str, value: Any, default: Any) -> Iterator[ConfigProblem]:
    """`default`: words that are allowed, numbers as many as there must be, or a value of the kind."""
    if _is_choice(default):
        if value not in default:
            yield ConfigProblem(key, one_of(list(default)), show(value))
    elif isinstance(default, tuple):
        if not isinstance(value, list) or len(value) != len(default) or not all(map(_is_number, value)):
            yield ConfigProblem(key, f"{len(default)} numbers", show(value), f"{list(default)} is the default")
    elif isinstance(default, bool):
        if not isinstance(value, bool):
            yield ConfigProblem(key, "true or false", show(value))
    elif isinstance(default, int):
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            yield ConfigProblem(key, "a whole number, 0 or more", show(value), f"{default} is the default")
    elif not _is_number(value) or value < 0:
        yield ConfigProblem(key, "a number, 0 or more", show(value), f"{default:g} is the default")


def bound_of(rule: str, key: str) -> Bound | None:
    """Bound of an option: in words, and whether a number is within it."""
    return _BOUNDS.get(f"{rule}.{key}") or _BOUNDS.get(key)


def _bound_problems(rule: str, key: str, value: Any) -> Iterator[ConfigProblem]:
    """`value`: of the right kind."""
    wanted, holds = bound_of(rule, key) or ("", lambda _: True)
    wrong = [each for each in (value if isinstance(value, list) else [value]) if not holds(each)]
    if wrong:
        yield ConfigProblem(f"optimizer.{key}", wanted, show(wrong[0]))


def _is_choice(default: Any) -> bool:
    return isinstance(default, tuple) and isinstance(default[0], str)


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, (int, float)) and abs(value) < inf


def _as(default: Any, value: Any) -> Any:
    """`value` in the kind of its default: TOML has no tuples, and writes 1 for 1.0."""
    if isinstance(default, tuple) and not _is_choice(default):
        return tuple(map(float, value))
    return float(value) if isinstance(default, float) else value
