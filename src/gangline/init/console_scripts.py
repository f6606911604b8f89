"""Console scripts of a package, by its pyproject.toml: the function of which file each one calls."""

import tomllib
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsoleScript:
    """A program that an installation of the package makes."""

    name: str
    module: str
    function: str

    @property
    def words(self) -> list[str]:
        """Words of Python that call it without an installation; further words are its arguments."""
        return ["-c", f"from {self.module} import {self.function}; {self.function}()"]


def console_scripts(pyproject: bytes, files: Collection[str]) -> dict[str, ConsoleScript]:
    """File -> the first console script whose function is in it; files at the top or below `src`."""
    found: dict[str, ConsoleScript] = {}
    for name, target in _tables(pyproject):
        module, _, function = target.partition(":")
        stem = module.strip().replace(".", "/")
        paths = [f"{root}{stem}{ending}" for root in ("", "src/") for ending in (".py", "/__init__.py")]
        path = next((path for path in paths if path in files), None)
        if path is not None and function.strip().isidentifier():
            script = ConsoleScript(name=name, module=module.strip(), function=function.strip())
            found.setdefault(path, script)
    return found


def _tables(pyproject: bytes) -> list[tuple[str, str]]:
    """(name, target) of `[project.scripts]` and of Poetry's; none of a file that does not read."""
    data: Any = {}
    with suppress(tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError):
        data = tomllib.loads(pyproject.decode())
    tables = (_inner(data, "project", "scripts"), _inner(data, "tool", "poetry", "scripts"))
    return [(name, target) for table in tables for name, target in table.items() if isinstance(target, str)]


def _inner(data: Any, *names: str) -> Mapping[str, Any]:
    for name in names:
        data = data.get(name) if isinstance(data, Mapping) else None
    return data if isinstance(data, Mapping) else {}
