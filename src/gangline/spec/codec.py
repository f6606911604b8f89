"""Frozen dataclasses to JSON and back with the standard library alone: ranks and keepers have nothing else.

Files that people write go through `spec.config.load` instead, which explains every mistake; this codec reads what
gangline itself wrote, refuses what does not fit, and is byte-stable: sorted keys, no spaces, no NaN.
"""

import json
import re
import types
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, partial
from hashlib import sha256
from math import isfinite
from typing import Any, Literal, Self, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from gangline.errors import ConfigError, IntegrityError

T = TypeVar("T")
_SCALARS: frozenset[type] = frozenset((str, int, float, bool, type(None)))
_Order = Callable[[Iterable[str]], Iterable[str]]
DEEPEST = 100
"""Levels of a value whose shape is not declared."""
_HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")
"""An escaped surrogate: alone it encodes no character, and it cannot be written again."""


def canonical(value: Any) -> bytes:
    """The one JSON form of `value` (a dataclass or plain data): sorted keys, no spaces, finite numbers only."""
    return _dump(_plain(value, sorted))


def digest(value: Any) -> str:
    """SHA-256 over the canonical JSON of `value`, in hex."""
    return sha256(canonical(value)).hexdigest()


def to_plain(value: Any) -> Any:
    """Dictionaries, lists and scalars of a dataclass tree."""
    return _plain(value, tuple)


def _plain(value: Any, order: _Order) -> Any:
    """Plain data with the keys of each dictionary in `order`."""
    kind: Any = type(value)
    if kind in _SCALARS:
        return value
    if (names := _names_of(kind, order)) is not None:
        return {name: item if type(item := getattr(value, name)) in _SCALARS else _plain(item, order) for name in names}
    if isinstance(value, dict):
        items = {str(key): item for key, item in value.items()}
        return {key: _plain(items[key], order) for key in order(items)}
    if isinstance(value, (list, tuple)):
        return [item if type(item) in _SCALARS else _plain(item, order) for item in value]
    return value


@cache
def _names_of(kind: type, order: _Order) -> tuple[str, ...] | None:
    """Fields of a dataclass, in `order` once, not at each of its values; None: it is none."""
    return tuple(order(f.name for f in fields(kind))) if is_dataclass(kind) else None


def canonical_of_set_fields(value: Any) -> bytes:
    """The one JSON form of what `value` says beyond the defaults of its dataclasses.

    It stays the same when a later version adds fields with defaults, and when a value is written and read back: 0 and
    0.0 are one number.
    """
    return _dump(_set_fields(value))


def _set_fields(value: Any) -> Any:
    kind: Any = type(value)
    if kind is float:
        return int(value) if value.is_integer() else value
    if kind in _SCALARS:
        return value
    if (defaults := _defaults(kind)) is not None:
        return {
            name: _set_fields(item)
            for name, default in defaults
            if (item := getattr(value, name)) is not default and item != default
        }
    if isinstance(value, dict):
        items = {str(key): item for key, item in value.items()}
        return {key: _set_fields(items[key]) for key in sorted(items)}
    if isinstance(value, (list, tuple)):
        return [_set_fields(item) for item in value]
    return value


@cache
def _defaults(kind: type) -> tuple[tuple[str, Any], ...] | None:
    """Fields of a dataclass by name, each with its default; one without has a default that nothing equals."""
    if not is_dataclass(kind):
        return None
    own = sorted(fields(kind), key=lambda f: f.name)
    return tuple((f.name, f.default_factory() if f.default_factory is not MISSING else f.default) for f in own)


def _dump(ordered: Any) -> bytes:
    return json.dumps(ordered, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


class Document:
    """A dataclass that lies in a store or a folder as one JSON text, and is read back by `from_json`."""

    __slots__ = ()

    def to_json(self) -> bytes:
        """The one JSON form of this document; its digest is made of these bytes."""
        return canonical(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> Self:
        """Raises IntegrityError as the function `from_json` does."""
        return from_json(cls, data)


def from_json(cls: type[T], data: bytes | str) -> T:
    """Read `cls` from JSON that `canonical` wrote; what it returns, `canonical` can write.

    Raises:
        IntegrityError: The text is not JSON, or does not have the shape of `cls`; the path of the field is named.
            Whatever the text is, nothing else is raised.
    """
    try:
        plain = read_json(data)
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"{cls.__name__}: wanted JSON, found {data[:40]!r}: {error}") from error
    return from_plain(cls, plain)


def read_json(data: bytes | str) -> Any:
    """JSON in UTF-8, of finite numbers and whole characters.

    Raises:
        ValueError: It is something else.
        RecursionError: It is nested too deeply.
    """
    text = data if isinstance(data, str) else data.decode()
    plain = json.loads(text, parse_constant=_finite, parse_float=_finite)
    if _HALF_CHARACTER.search(text) and not _is_text(plain):
        raise ValueError("it contains a lone surrogate")
    return plain


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"wanted a finite number, found {text[:40]}")
    return number


def from_plain(cls: type[T], plain: Any) -> T:
    """Build `cls` from plain data.

    Raises:
        IntegrityError: A field is unknown, missing or of another type; its path is named.
    """
    return cast(T, _reader_of(cls)(plain, (None, cls.__name__)))


def _is_text(plain: Any) -> bool:
    """Can it be written again? JSON may name halves of characters, which no encoding has."""
    try:
        json.dumps(plain, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


_Path = tuple[Any, str | int]
"""Path of the outer value, None at the outermost, and the name or number in it: most of them are never written."""
_Reader = Callable[[Any, _Path], Any]
"""Function of plain data and its path: the value, or an IntegrityError."""
_Part = tuple[frozenset[type], _Reader]
"""Types of the scalars that are taken as they are, and the reader of all other values."""


def _path_text(path: _Path) -> str:
    steps: list[str] = []
    while path[0] is not None:
        path, step = path
        steps.append(f"[{step}]" if isinstance(step, int) else f".{step}")
    return "".join((str(path[1]), *reversed(steps)))


def _reader_of(kind: Any) -> _Reader:
    """Reads values of the type `kind`; what can be known of the type is found once, not for each value."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return partial(_read_union, tuple(map(_reader_of, inner)))
    if origin is list or (origin is tuple and inner[-1] is Ellipsis):
        return partial(_read_list, kind, origin, _part_of(inner[0]))
    if origin is tuple:
        return partial(_read_tuple, kind, tuple(map(_reader_of, inner)))
    if origin is dict:
        return partial(_read_table, kind, _part_of(inner[1]))
    return partial(_read_literal, kind, inner) if origin is Literal else _plain_reader(kind)


def _part_of(kind: Any) -> _Part:
    """How a field or an item of the type `kind` is read; most are scalars, for which no function is called."""
    return _as_they_are(kind), _reader_of(kind)


def _as_they_are(kind: Any) -> frozenset[type]:
    """Types of the scalars that the reader of `kind` returns as they are."""
    if get_origin(kind) in (Union, types.UnionType):
        members = {each for member in get_args(kind) for each in _as_they_are(member)}
        return frozenset(members - {int} if float in members else members)
    return _SCALARS if kind is Any else _SCALARS & {type(None) if kind is None else kind}


def _plain_reader(kind: Any) -> _Reader:
    """Reader of a type that has no arguments."""
    if kind is Any:
        return _read_anything
    if kind is float:
        return _read_float
    if isinstance(kind, type) and is_dataclass(kind):
        return partial(_read_dataclass, kind)
    return partial(_read_scalar, type(None) if kind is None else kind)


def _read_anything(plain: Any, path: _Path) -> Any:
    if not _is_shallow(plain, DEEPEST):
        raise IntegrityError(f"{_path_text(path)}: wanted at most {DEEPEST} levels, found a value nested deeper")
    return plain


def _is_shallow(plain: Any, levels: int) -> bool:
    if not isinstance(plain, (dict, list)):
        return True
    inner = plain.values() if isinstance(plain, dict) else plain
    return levels > 0 and all(_is_shallow(each, levels - 1) for each in inner)


def _read_literal(kind: Any, words: tuple[Any, ...], plain: Any, path: _Path) -> Any:
    return _expect(plain in words, plain, path, kind)


def _read_float(plain: Any, path: _Path) -> float:
    _expect(isinstance(plain, (int, float)) and not isinstance(plain, bool), plain, path, float)
    try:
        return float(plain)
    except OverflowError as error:
        raise IntegrityError(f"{_path_text(path)}: wanted a number, found one of {plain.bit_length()} bits") from error


def _read_scalar(kind: type, plain: Any, path: _Path) -> Any:
    return _expect(isinstance(plain, kind) and (kind is bool or not isinstance(plain, bool)), plain, path, kind)


def _read_list(kind: Any, build: Callable[[Iterable[Any]], Any], part: _Part, plain: Any, path: _Path) -> Any:
    _expect(isinstance(plain, list), plain, path, kind)
    known, read = part
    return build([item if type(item) in known else read(item, (path, i)) for i, item in enumerate(plain)])


def _read_tuple(kind: Any, readers: tuple[_Reader, ...], plain: Any, path: _Path) -> tuple[Any, ...]:
    _expect(isinstance(plain, list) and len(plain) == len(readers), plain, path, kind)
    return tuple(read(item, (path, i)) for i, (read, item) in enumerate(zip(readers, plain, strict=True)))


def _read_table(kind: Any, part: _Part, plain: Any, path: _Path) -> Any:
    _expect(isinstance(plain, dict), plain, path, kind)
    known, read = part
    return {key: item if type(item) in known else read(item, (path, key)) for key, item in plain.items()}


def _read_union(members: tuple[_Reader, ...], plain: Any, path: _Path) -> Any:
    for read in members[:-1]:
        with suppress(IntegrityError):
            return read(plain, path)
    return members[-1](plain, path)


def _read_dataclass(cls: type, plain: Any, path: _Path) -> Any:
    _expect(isinstance(plain, dict), plain, path, cls)
    parts, required, newest = _fields_of(cls)
    version = plain.get("schema", newest)
    if isinstance(newest, int) and isinstance(version, int) and version > newest:
        raise IntegrityError(
            f"{_path_text(path)}.schema: wanted at most {newest}, found {version}; read it with a newer gangline"
        )
    if unknown := plain.keys() - parts.keys():
        raise IntegrityError(
            f"{_path_text(path)}: unknown fields {sorted(unknown)}; written by another version of gangline?"
        )
    if missing := required - plain.keys():
        raise IntegrityError(f"{_path_text(path)}: fields {sorted(missing)} are missing")
    values: dict[str, Any] = {}
    for name, item in plain.items():
        known, read = parts[name]
        values[name] = item if type(item) in known else read(item, (path, name))
    try:
        return cls(**values)
    except (ConfigError, ArithmeticError) as error:  # rules of its own, such as those of a mesh
        raise IntegrityError(f"{_path_text(path)}: {error}") from error


@cache
def _fields_of(cls: Any) -> tuple[dict[str, _Part], frozenset[str], Any]:
    """How each field is read, which have no default, and the newest version that this code reads: the default of
    `schema`."""
    hints, own = get_type_hints(cls), fields(cls)
    required = frozenset(field.name for field in own if field.default is MISSING and field.default_factory is MISSING)
    newest = next((field.default for field in own if field.name == "schema"), None)
    return {name: _part_of(kind) for name, kind in hints.items()}, required, newest


def _expect(holds: bool, plain: Any, path: _Path, kind: Any) -> Any:
    if not holds:
        raise IntegrityError(
            f"{_path_text(path)}: wanted {getattr(kind, '__name__', kind)}, found {_value_text(plain)}"
        )
    return plain


def _value_text(plain: Any) -> str:
    """A value in a message; of tables and lists, which may be large and deep, only what they are."""
    if isinstance(plain, (dict, list)):
        return f"{'a table' if isinstance(plain, dict) else 'a list'} of {len(plain)}"
    text = repr(plain) if not isinstance(plain, int) or plain.bit_length() < 256 else "a large integer"
    return text if len(text) <= 200 else f"{text[:200]}..."
