"""Plain tables to frozen dataclasses with cattrs: strict, without coercion, every mistake with its path.

Then the bounds of numbers and the rules of each table judge what could be read. `load` imports this module only when it
reads a file: cattrs is slow to import.
"""

import types
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import fields, is_dataclass, replace
from difflib import get_close_matches
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from cattrs import (
    AttributeValidationNote,
    BaseValidationError,
    ClassValidationError,
    Converter,
    ForbiddenExtraKeysError,
    IterableValidationError,
    IterableValidationNote,
)
from cattrs.cols import homogenous_tuple_structure_factory, mapping_structure_factory
from cattrs.gen import make_dict_structure_fn

from gangline.spec.bounds import Bound, split_bounds
from gangline.spec.config.cost_table import with_cost_table
from gangline.spec.config.fabric import FabricFile
from gangline.spec.config.line import Line
from gangline.spec.config.problems import ConfigProblem, found, shorten, show
from gangline.spec.config.rules_fabric import fabric_rules
from gangline.spec.config.rules_federated import member_rules
from gangline.spec.config.rules_line import TABLE_RULES, Reader, line_rules
from gangline.spec.config.rules_site import site_rules
from gangline.spec.config.site import Site
from gangline.spec.config.site_tables import MemberTable

T = TypeVar("T")
Hook = Callable[[Any, Any], Any]
_NAMES = {int: "an integer", float: "a number", bool: "true or false", str: "a string", type(None): "nothing"}
_PLURALS = {int: "integers", float: "numbers", str: "strings"}
_LONGEST_NAME = 60


class Mismatch(ValueError):
    """A value that is not what its key wants."""

    def __init__(self, wanted: str, value: Any) -> None:
        super().__init__(wanted)
        self.wanted = wanted
        self.value = value


def structure(cls: type[T], plain: Any, *, key: str = "") -> tuple[T | None, list[ConfigProblem]]:
    """`cls` from plain data, or every reason why not."""
    try:
        return _converter().structure(plain, cls), []
    except (Mismatch, BaseValidationError) as error:
        return None, _problems(error, key)


def _structure_rest(cls: type[T], plain: dict[str, Any], problems: list[ConfigProblem], *, key: str = "") -> T | None:
    """`cls` without the values that have problems, so that rules can judge the rest; None: too little is left."""
    rest: Any = deepcopy(plain)
    for problem in problems:
        _drop(rest, problem.key.removeprefix(f"{key}.").partition("[")[0].split("."))
    return structure(cls, rest, key=key)[0]


def describe(kind: Any) -> str:
    """What a value of `kind` is, in words: `an integer or "auto"`."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        words = [describe(member) for member in inner if member is not type(None)]
        return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
    if origin is Literal:
        return " or ".join(f'"{word}"' for word in inner)
    if origin is tuple:
        count = "" if inner[-1] is Ellipsis else f"{len(inner)} "
        return f"a list of {count}{_PLURALS.get(inner[0], 'tables')}"
    return _NAMES.get(kind, "a table")


@cache
def _converter() -> Converter:
    converter = Converter(forbid_extra_keys=True, detailed_validation=True)
    for kind in (int, float, bool, str):
        converter.register_structure_hook(kind, _scalar)
    factories: dict[Any, Callable[[Any, Converter], Hook]] = {
        Literal: lambda _, __: _word, Union: _union, types.UnionType: _union, tuple: _sequence, dict: _table,
    }  # fmt: skip
    converter.register_structure_hook_factory(
        lambda kind: get_origin(kind) in factories, lambda kind: factories[get_origin(kind)](kind, converter)
    )
    converter.register_structure_hook_factory(
        lambda kind: isinstance(kind, type) and is_dataclass(kind), lambda kind: _record(kind, converter)
    )
    return converter


def _scalar(value: Any, kind: Any) -> Any:
    accepted = (int, float) if kind is float else kind
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        raise Mismatch(describe(kind), value)
    return float(value) if kind is float else value


def _word(value: Any, kind: Any) -> Any:
    if not isinstance(value, str) or value not in get_args(kind):
        raise Mismatch(describe(kind), value)
    return value


def _union(kind: Any, converter: Converter) -> Hook:
    members = [member for member in get_args(kind) if member is not type(None)]

    def hook(value: Any, _: Any) -> Any:
        if len(members) == 1:
            return converter.structure(value, members[0])  # its own problems, key by key
        for member in members:
            try:
                return converter.structure(value, member)
            except (Mismatch, BaseValidationError):
                continue
        raise Mismatch(describe(kind), value)

    return hook


def _guarded(shape: type[list[Any]] | type[dict[Any, Any]], build: Hook, wanted: Any) -> Hook:
    """`build` behind a look at the shape: cattrs would iterate over a string, too."""
    inner = get_args(wanted)
    fixed = len(inner) if shape is list and inner[-1] is not Ellipsis else None

    def hook(value: Any, _: Any) -> Any:
        if not isinstance(value, shape) or (fixed is not None and len(value) != fixed):
            raise Mismatch(describe(wanted), value)
        return build(value, wanted)

    return hook


def _sequence(kind: Any, converter: Converter) -> Hook:
    many: Any = tuple.__class_getitem__((get_args(kind)[0], ...))
    return _guarded(list, homogenous_tuple_structure_factory(many, converter), kind)


def _table(kind: Any, converter: Converter) -> Hook:
    return _guarded(dict, mapping_structure_factory(kind, converter), kind)


def _record(kind: Any, converter: Converter) -> Hook:
    build = make_dict_structure_fn(kind, converter, _cattrs_forbid_extra_keys=True, _cattrs_detailed_validation=True)
    return _guarded(dict, build, kind)


def _problems(error: Exception, key: str) -> list[ConfigProblem]:
    if isinstance(error, Mismatch):
        return [ConfigProblem(key, error.wanted, found(key, error.value))]
    if isinstance(error, ForbiddenExtraKeysError):
        return [_unknown_key(name, error.cl, key) for name in sorted(error.extra_fields)]
    if isinstance(error, KeyError):
        return [ConfigProblem(key, "a value", "nothing", "this key is required")]
    if not isinstance(error, (ClassValidationError, IterableValidationError)):
        return [ConfigProblem(key, "a value that fits its table", str(error))]
    placed, unplaced = error.group_exceptions()
    inner = [(exception, key) for exception in unplaced]  # of a misspelled key, before the one that lacks it
    inner += [(exception, _place(key, note)) for exception, note in placed]
    return [problem for exception, place in inner for problem in _problems(exception, place)]


def _place(key: str, note: AttributeValidationNote | IterableValidationNote) -> str:
    if isinstance(note, AttributeValidationNote):
        return _join(key, note.name)
    return f"{key}[{note.index}]" if isinstance(note.index, int) else _join(key, str(note.index))


def _unknown_key(name: str, cls: type, key: str) -> ConfigProblem:
    """The problem of a key that `cls` does not have, with the key that was probably meant."""
    known = [field.name for field in fields(cls)]
    near = get_close_matches(name[:_LONGEST_NAME], known, n=1, cutoff=0.5)
    works = f"did you mean {_join(key, near[0])}?" if near else f"there are {', '.join(known)}"
    return ConfigProblem(_join(key, shorten(name)), "a known key", "an unknown one", works)


def _drop(table: Any, path: list[str]) -> None:
    for name in path[:-1]:
        table = table.get(name) if isinstance(table, dict) else None
    if isinstance(table, dict):
        table.pop(path[-1], None)


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


_REQUIRED = ("project", "train")


def build_line(plain: dict[str, Any], reader: Reader | None) -> tuple[Line | None, list[ConfigProblem]]:
    """A line, or its problems table by table: a mistake in one does not hide those of the others."""
    tables: dict[str, Any] = {}
    problems: list[ConfigProblem] = []
    for name, kind in get_type_hints(Line).items():
        if name in plain or name in _REQUIRED:
            tables[name], config_problems = structure(kind, plain.get(name, {}), key=name)
            problems += config_problems + _judge(name, kind, tables[name], plain.get(name), config_problems)
    problems += [_unknown_key(name, Line, "") for name in sorted(plain.keys() - get_type_hints(Line).keys())]
    if problems:
        return None, problems
    line = Line(**tables)
    optimizer, problems = with_cost_table(line.optimizer, reader) if reader else (line.optimizer, [])
    return replace(line, optimizer=optimizer), [*line_rules(line, reader), *problems]


_FILE_RULES: dict[type, Callable[[Any], Iterable[ConfigProblem]]] = {
    Site: site_rules,
    FabricFile: fabric_rules,
    MemberTable: member_rules,
}


def build_file(cls: type[T], plain: dict[str, Any]) -> tuple[T | None, list[ConfigProblem]]:
    """A whole file, or its problems; rules judge the rest of one that has values of a wrong type."""
    found, problems = structure(cls, plain)
    known = {problem.key for problem in problems}
    judged = found or _structure_rest(cls, plain, problems)
    if judged:
        rest = [*bound_problems(judged), *_FILE_RULES[cls](judged)]
        problems += [problem for problem in rest if problem.key not in known]
    return found, problems


def _judge(name: str, kind: type, table: Any, plain: Any, found: list[ConfigProblem]) -> list[ConfigProblem]:
    """What the rules of a table say, also about the rest of one that has values of a wrong type."""
    if found:
        table = _structure_rest(kind, plain, found, key=name) if isinstance(plain, dict) else None
    if table is None:
        return []
    known = {problem.key for problem in found}
    rest = [*bound_problems(table, name), *(TABLE_RULES[name](table) if name in TABLE_RULES else ())]
    return [problem for problem in rest if problem.key not in known]


def bound_problems(table: Any, key: str = "") -> Iterator[ConfigProblem]:
    """Numbers of `table`, which is called `key`, and of the tables in it, that are out of their bounds."""
    cls: Any = type(table)
    for name, bounds in _bounds_of(cls).items():
        yield from _number_problems(f"{key}.{name}" if key else name, getattr(table, name), bounds)


def _number_problems(key: str, value: Any, bounds: tuple[Bound, ...]) -> Iterator[ConfigProblem]:
    if is_dataclass(value):
        yield from bound_problems(value, key)
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from _number_problems(f"{key}.{name}", each, bounds)
    elif isinstance(value, tuple):
        for index, each in enumerate(value):
            yield from _number_problems(f"{key}[{index}]", each, ())
    elif isinstance(value, (int, float)):
        broken = (bound for bound in bounds if not bound.holds(value))
        yield from (ConfigProblem(key, bound.wanted, show(value), bound.works) for bound in broken)


@cache
def _bounds_of(cls: Any) -> dict[str, tuple[Bound, ...]]:
    return {name: split_bounds(kind)[1] for name, kind in get_type_hints(cls, include_extras=True).items()}
