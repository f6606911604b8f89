"""TOML text to plain data, with limits on size and depth that are checked first; and values put into such a text.

An edit keeps comments, order and layout, and its result is read back.
"""

import math
import re
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

from gangline.errors import NotInstalledError, UsageError
from gangline.spec.config.problems import ConfigProblem, FileError, show
from gangline.spec.search import Scalar

MOST_BYTES = 64 * 1024
DEEPEST_TOML = 16

_STRINGS_AND_COMMENTS = re.compile(
    r'"""(?:\\.|[^\\])*?(?:"""|\\?\Z)'
    r"|'''.*?(?:'''|\Z)"
    r'|"(?:\\.|[^"\\\n])*"?'
    r"|'[^'\n]*'?"
    r"|#[^\n]*",
    re.DOTALL,
)
"""Always advances, also over a string that never ends: the scan is linear in the text."""
_DEEP_NAME = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{DEEPEST_TOML}}}")


def read_toml(text: str, *, file: str) -> dict[str, Any]:
    """Plain tables of `text`: strings, booleans, 64-bit integers, finite floats, lists and tables only.

    Raises:
        FileError: Too large, too deep, no TOML, or a value that JSON has no word for.
    """
    if problem := _bounds(text):
        raise FileError(file, [problem])
    try:
        plain = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        works = "see https://toml.io; strings are written in quotes"
        raise FileError(file, [ConfigProblem("", "TOML", _first_line(error), works)]) from error
    problems: list[ConfigProblem] = []
    _check_values(plain, "", 0, problems)
    if problems:
        raise FileError(file, problems)
    return plain


def _bounds(text: str) -> ConfigProblem | None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return ConfigProblem("", "UTF-8 text", "bytes that are not UTF-8", "save the file as UTF-8")
    if size > MOST_BYTES:
        return ConfigProblem("", f"at most {MOST_BYTES} bytes", f"{size}", "move data out of the file")
    bare = _STRINGS_AND_COMMENTS.sub(" q ", text)
    if _DEEP_NAME.search(bare) or _deepest(bare) > DEEPEST_TOML:
        return ConfigProblem("", f"at most {DEEPEST_TOML} levels", "a name or value nested deeper", "nest less")
    return None


def _deepest(bare: str) -> int:
    depth = deepest = 0
    for mark in re.findall(r"[\[\]{}]", bare):
        depth = depth + 1 if mark in "[{" else max(0, depth - 1)
        deepest = max(deepest, depth)
    return deepest


def _check_values(value: Any, key: str, depth: int, problems: list[ConfigProblem]) -> None:
    if depth > 4 * DEEPEST_TOML:
        problems.append(ConfigProblem(key, f"at most {4 * DEEPEST_TOML} levels", "a value nested deeper", "nest less"))
    elif isinstance(value, dict):
        for name, item in value.items():
            _check_values(item, f"{key}.{name}" if key else name, depth + 1, problems)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_values(item, f"{key}[{index}]", depth + 1, problems)
    elif wanted := _refusal(value):
        problems.append(ConfigProblem(key, wanted, show(value)))


def _refusal(value: Any) -> str | None:
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return "an integer of 64 bits"
    if isinstance(value, float) and not math.isfinite(value):
        return "a finite number"
    return None if isinstance(value, (str, int, float)) else "a string, number, boolean, list or table"


def _first_line(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "values nested too deeply"
    return (str(error).splitlines() or ["nothing readable"])[0][:200]


def with_values(text: str, values: Mapping[str, Scalar], *, file: str = "line.toml") -> str:
    """`text` with each `table.key` of `values` set; all other bytes stay as they are.

    Raises:
        NotInstalledError: tomlkit is not here.
        UsageError: The text has a form that it would not keep; the message has the values to write by hand.
    """
    try:
        import tomlkit
        from tomlkit.exceptions import TOMLKitError
    except ImportError as error:
        works = "uv pip install 'gangline[search]'"
        raise NotInstalledError(f"{file}: wanted tomlkit, which edits it, found none; {works}") from error
    try:
        wanted, document = tomllib.loads(text), tomlkit.parse(text)
        for key, value in values.items():
            _put(wanted, key, value, make=dict)
            _put(document, key, value, make=tomlkit.table)
        edited = tomlkit.dumps(document)
        if tomllib.loads(edited) == wanted:
            return edited
    except (TOMLKitError, KeyError, TypeError, ValueError):
        pass
    by_hand = ", ".join(f"{key} = {value!r}" for key, value in values.items())
    raise UsageError(f"{file}: wanted a layout that an edit keeps, found another one; write by hand: {by_hand}")


def _put(table: Any, key: str, value: Scalar, *, make: Callable[[], Any]) -> None:
    *path, name = key.split(".")
    for part in path:
        if part not in table:
            table[part] = make()
        table = table[part]
    table[name] = value
