"""Console scripts of the packages of a repository, by their pyproject.toml: which function of which file each calls."""

import ast
import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

PYPROJECT = "pyproject.toml"
_COMMANDS = ("train", "pretrain", "finetune", "fit")
_CALLERS = frozenset({"CLI", "auto_cli", "Fire"})
"""Calls that make sub-commands of the keys of a table."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsoleScript:
    """A program that an installation of a package makes."""

    name: str
    module: str
    function: str
    root: str
    """Folder that the module is imported from; empty: the top."""
    pyproject: str
    """Path of the file that declares it."""
    command: str = ""
    """Sub-command of it that trains; empty: none was seen."""

    @property
    def words(self) -> list[str]:
        """Words of Python that call it without an installation; further words are its arguments."""
        package, _, last = self.module.rpartition(".")
        runs_package = last == "__main__" and package
        start = (
            ["-m", package] if runs_package else ["-c", f"from {self.module} import {self.function}; {self.function}()"]
        )
        return [*start, *([self.command] if self.command else [])]


def console_scripts(files: Mapping[str, bytes]) -> dict[str, ConsoleScript]:
    """File -> the first console script whose function is in it, of all packages; the outermost package first."""
    found: dict[str, ConsoleScript] = {}
    for pyproject in sorted(_pyprojects(files), key=lambda path: (path.count("/"), path)):
        folder = str(PurePosixPath(pyproject).parent).removeprefix(".")
        for name, target in _tables(files[pyproject]):
            module, _, function = (part.strip() for part in target.partition(":"))
            if (place := _place(module, folder, files)) is not None and function.isidentifier():
                path, root = place
                script = ConsoleScript(
                    name=name, module=module, function=function, root=root, pyproject=pyproject,
                    command=_training_command(files[path]),
                )  # fmt: skip
                found.setdefault(path, script)
    return found


def _pyprojects(files: Collection[str]) -> Iterator[str]:
    return (path for path in files if PurePosixPath(path).name == PYPROJECT)


def _place(module: str, folder: str, files: Collection[str]) -> tuple[str, str] | None:
    """(file, folder on the path of Python) of a module: at the top of its package's folder, or below `src`."""
    stem = module.replace(".", "/")
    for root in (folder, f"{folder}/src".strip("/")):
        for ending in (".py", "/__init__.py"):
            if (path := str(PurePosixPath(root) / f"{stem}{ending}")) in files:
                return path, root
    return None


def _training_command(source: bytes) -> str:
    """The likeliest sub-command of a program that trains: a key of a table, or a name given to a parser or command."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    found = set(_sub_commands(tree))
    return next((name for name in _COMMANDS if name in found), "")


def _sub_commands(tree: ast.Module) -> Iterator[str]:
    """Names given to parsers and commands, and keys of a table that a caller such as jsonargparse's CLI gets."""
    tables, decorated, has_group = set[str](), list[str](), False
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="add_parser"), args=[ast.Constant(value=str(name)), *_]):
                yield name
            case ast.Call(func=ast.Name(id=caller) | ast.Attribute(attr=caller), args=[table, *_]) if (
                caller in _CALLERS
            ):
                tables |= {table.id} if isinstance(table, ast.Name) else set()
                yield from _keys(table)
            case ast.FunctionDef(name=name, decorator_list=decorators):
                has_group = has_group or any(_is_called(decorator, "group") for decorator in decorators)
                found = [
                    decorator
                    for decorator in decorators
                    if _is_called(decorator, "command") and not _is_plain(decorator)
                ]
                decorated += [_named(found[0]) or name] if found else []
    if has_group or len(decorated) > 1:  # a single command of typer has no name
        yield from decorated
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=table) if name in tables:
                yield from _keys(table)


def _keys(table: ast.expr) -> Iterator[str]:
    for key in table.keys if isinstance(table, ast.Dict) else ():
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value


def _is_called(decorator: ast.expr, name: str) -> bool:
    """`@cli.command(...)` of click and typer, for the name `command`."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(called, ast.Attribute) and called.attr == name


def _is_plain(decorator: ast.expr) -> bool:
    """`@click.command()`: a program without sub-commands."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "click"


def _named(decorator: ast.expr) -> str:
    match decorator:
        case ast.Call(args=[ast.Constant(value=str(name)), *_]):
            return name
    return ""


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
