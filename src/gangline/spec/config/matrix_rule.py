"""The matrix rule of a line, `[optimizer]`: options of the rule, parameters that it gets, options of its plan."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gangline.spec.config.cost_table import KEY, MODEL, cost_table_problems
from gangline.spec.config.matrix_options import (
    REPEATS_ALONE,
    RULES,
    MatrixOptions,
    MatrixPlanOptions,
    MuonOptions,
    Route,
)
from gangline.spec.config.option_tables import nearest, option_problems, options_of, read_options, unknown_options
from gangline.spec.config.problems import ConfigProblem, one_of, shorten, show

OVERLAP_WHILE_LIVE = (
    'optimizer.overlap: "forward" leaves a replica without a whole state of one step until its next forward pass ends, '
    'and train.recovery.mode = "live" continues from such states; "off", or recovery.mode = "restart", works'
)
"""Planner and ranks refuse it with the same message."""
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
_OTHERS = ("exclude", "route", "cost")
"""Keys that are no options."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MatrixRuleTable:
    """What a line says of its matrix rule."""

    rule: str
    """muon, shampoo, soap, or `package.module:Class` of the model's repository."""
    options: MatrixOptions | Mapping[str, Any]
    """Options of a rule by name; of a class of the repository the given keys."""
    exclude: tuple[str, ...] = EXCLUDE
    """Parameters are updated by the elementwise rule where a part of their name begins with one of these."""
    routes: tuple[Route, ...] = ()
    plan: MatrixPlanOptions = MatrixPlanOptions()
    cost: Mapping[str, Any] | None = None
    """Measured seconds of updates: a file of the commit, whose content it becomes; none, or `model`: plans go by
    operations."""

    @property
    def overlaps(self) -> bool:
        """Updates travel to copies during the next forward pass."""
        return self.plan.overlap == "forward"

    @property
    def repeats(self) -> bool:
        """Each copy of a matrix computes its update, and keeps all of its state."""
        return self.plan.copies == "repeat"


def read_matrix_rule(table: Mapping[str, Any]) -> MatrixRuleTable | None:
    """The matrix rule of a table; None: it has none, or one with problems, which a task may read as it likes."""
    rule = table.get("rule")
    stated = {name: value for name, value in table.items() if name != "cost"}  # whose rows were checked with their file
    if rule is None or any(matrix_rule_problems(stated)):
        return None
    own = {"rule", "elementwise", *_OTHERS, *options_of(MatrixPlanOptions)}
    return MatrixRuleTable(
        rule=rule, plan=read_options(MatrixPlanOptions, table),
        options=read_options(RULES[rule], table) if rule in RULES else {
            name: value for name, value in table.items() if name not in own
        },
        exclude=tuple(table.get("exclude", EXCLUDE)),
        routes=tuple(read_options(Route, each) for each in table.get("route", ())),
        cost=table["cost"] if isinstance(table.get("cost"), Mapping) else None,
    )  # fmt: skip


def matrix_rule_problems(table: Mapping[str, Any]) -> Iterator[ConfigProblem]:
    """What ranks would refuse of `table`, `elementwise` apart."""
    rule, keys = table.get("rule"), sorted(table.keys() - {"elementwise", "rule"})
    plan = options_of(MatrixPlanOptions)
    if rule is None:
        for key in keys:
            is_known = key in {*plan, *options_of(MuonOptions), *_OTHERS}
            works = 'write rule = "muon" with it' if is_known else "write [optimizer.elementwise]"
            yield ConfigProblem(f"optimizer.{shorten(key)}", "elementwise, or the options of a rule", "no rule", works)
        return
    if not isinstance(rule, str) or (rule not in RULES and not _is_class(rule)):
        near = nearest(str(rule).rpartition(":")[2].lower(), RULES)
        works = f'did you mean "{near}"?' if near else '"package.module:Class" names a rule of your own'
        yield ConfigProblem("optimizer.rule", one_of(list(RULES)), show(rule), works)
        return
    if table.get("copies") == "repeat" and (table.get("overlap") == "forward" or table.get("team") == "auto"):
        yield ConfigProblem("optimizer.copies", '"share"', '"repeat"', REPEATS_ALONE)
    yield from option_problems(MatrixPlanOptions, table)
    if "exclude" in table:
        yield from _exclude_problems(table["exclude"])
    if "route" in table:
        yield from _route_problems(table["route"])
    if "cost" in table:
        yield from _cost_problems(table["cost"])
    if rule in RULES:
        yield from option_problems(RULES[rule], table)
        options = [*plan, *options_of(RULES[rule])]
        yield from unknown_options(rule, table.keys() - {"elementwise", "rule"}, options, *_OTHERS)


def _is_class(rule: str) -> bool:
    """Is it a class of the repository? torch has no `MatrixRule`."""
    module, separator, name = rule.partition(":")
    return (
        bool(separator)
        and module.partition(".")[0] != "torch"
        and name.isidentifier()
        and all(part.isidentifier() for part in module.split("."))
    )


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
        options = options_of(Route)
        for name in sorted(route.keys() - options.keys()):
            yield ConfigProblem(f"{key}.{shorten(name)}", one_of(list(options)), "an unknown key")
        yield from option_problems(Route, {name: route[name] for name in route.keys() - {"match"}}, key=key)
