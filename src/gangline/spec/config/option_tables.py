"""Options of a rule as a frozen dataclass: what a table says of them, refused key by key, and read.

Types and bounds stand next to each option. Ranks read their plans so, and have no cattrs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from math import inf
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from gangline.errors import ConfigError
from gangline.spec.bounds import Bound, split_bounds
from gangline.spec.codec import from_plain, to_plain
from gangline.spec.config.problems import ConfigProblem, one_of, shorten, show

T = TypeVar("T")
_NAMES = {bool: "true or false", int: "a whole number", float: "a number"}


class OptionTable:
    """A dataclass whose options are held to their types and bounds wherever it is made."""

    __slots__ = ()

    def __post_init__(self) -> None:
        """Raise ConfigError with a line for each option that is not what its key wants."""
        values = {name: getattr(self, name) for name in options_of(type(self))}
        if problems := [*option_problems(type(self), values)]:
            raise ConfigError("\n".join(map(str, problems)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """One option by its type, its bounds and its default."""

    kind: type
    """Type of its value, or of each number in a list."""
    choices: tuple[Any, ...] = ()
    """Values that there are; empty: all of the kind."""
    size: int | None = None
    """Numbers of a list; None: it is none."""
    bounds: tuple[Bound, ...] = ()
    default: Any = None

    @property
    def wanted(self) -> str:
        """What its key takes, in words."""
        if self.choices:
            return one_of([str(choice) for choice in self.choices])
        return ", ".join([f"{self.size} numbers" if self.size else _NAMES[self.kind], *(b.wanted for b in self.bounds)])

    def problems(self, key: str, value: Any) -> Iterator[ConfigProblem]:
        """What is wrong with `value`: its kind, else a bound."""
        if value is None and self.default is None:
            return
        is_list = isinstance(value, (list, tuple))
        numbers = list(value) if is_list else [value]
        works = "" if self.choices or self.kind is bool or self.default is None else self._works
        if len(numbers) != (self.size or 1) or is_list != bool(self.size) or not all(map(self._is_known, numbers)):
            yield ConfigProblem(key, self.wanted, show(value), works)
            return
        for bound in self.bounds:
            if wrong := [number for number in numbers if not bound.holds(number)]:
                yield ConfigProblem(key, bound.wanted, show(wrong[0]), works)

    @property
    def _works(self) -> str:
        shown = f"{self.default:g}" if isinstance(self.default, float) else to_plain(self.default)
        return f"{shown} is the default"

    def _is_known(self, value: Any) -> bool:
        """Whether `value` is of the kind, and of the choices; TOML writes 1 for 1.0, and a number is finite."""
        if isinstance(value, bool) or self.kind is bool:
            return isinstance(value, bool) and self.kind is bool
        if self.choices:
            return isinstance(value, self.kind) and value in self.choices
        return isinstance(value, (int, float) if self.kind is float else int) and abs(value) < inf


def option_problems(cls: type, table: Mapping[str, Any], *, key: str = "optimizer") -> Iterator[ConfigProblem]:
    """What is wrong with values of options of `cls`; other keys of `table` are left to the caller."""
    for name, option in options_of(cls).items():
        if name in table:
            yield from option.problems(f"{key}.{name}", table[name])


def unknown_options(
    rule: str, keys: Iterable[str], options: Sequence[str], *others: str, key: str = "optimizer"
) -> Iterator[ConfigProblem]:
    """Those of `keys` that are neither `options` of `rule` nor `others`, with what was probably meant."""
    for name in sorted({*keys} - {*options, *others}):
        near = nearest(name, [*options, *others])
        works = f"did you mean {near}?" if near else f"there are {', '.join(options)}"
        yield ConfigProblem(f"{key}.{shorten(name)}", f"an option of {rule}", "an unknown one", works)


def read_options(cls: type[T], table: Mapping[str, Any]) -> T:
    """`cls` as a table without problems says; other keys are left to the caller."""
    return from_plain(cls, {name: to_plain(table[name]) for name in options_of(cls) if name in table})


def options_of(cls: type) -> dict[str, Option]:
    """Every option of a rule, in order; what a subclass has besides, as a table of its own, is none."""
    return _options(cls)


@cache
def _options(cls: Any) -> dict[str, Option]:
    hints, defaults = get_type_hints(cls, include_extras=True), {field.name: field.default for field in fields(cls)}
    return {name: _option(_present(kind), defaults[name]) for name, kind in hints.items() if not is_dataclass(kind)}


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that was probably meant; empty: none."""
    return next(iter(get_close_matches(name[:60], sorted(known), n=1, cutoff=0.5)), "")


def _option(kind: Any, default: Any) -> Option:
    if get_origin(kind) is Literal:
        return Option(kind=type(get_args(kind)[0]), choices=get_args(kind), default=default)
    numbers = get_args(kind) if get_origin(kind) is tuple else ()
    inner, bounds = split_bounds(numbers[0] if numbers else kind)
    return Option(kind=inner, size=len(numbers) or None, bounds=bounds, default=default)


def _present(kind: Any) -> Any:
    """The type of a value, where the option may have none."""
    if get_origin(kind) in (Union, UnionType):
        return next(arg for arg in get_args(kind) if arg is not NoneType)
    return kind
