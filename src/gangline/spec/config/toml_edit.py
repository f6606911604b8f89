"""Values put into the text of a `line.toml`: comments, order and layout stay, and the result is read back."""

import tomllib
from collections.abc import Callable, Mapping
from typing import Any

from gangline.errors import NotInstalledError, UsageError
from gangline.spec.search_table import Scalar


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
