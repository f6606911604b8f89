"""Check of a line's task by its source text: does it exist, and what does it build? User code is not imported here."""

import ast
import difflib
from collections.abc import Callable, Sequence
from typing import Any

from gangline.errors import ConfigError
from gangline.spec.config.optimizer import read_optimizer

MOST_MODULE_BYTES = 500_000
"""Of the module that a task is looked up in."""


def check_task(
    task: str | None, reader: Callable[[str], bytes | None], *, path: Sequence[str] = (),
    optimizer: dict[str, Any] | None = None,
) -> None:  # fmt: skip
    """Refuse a `module:Class` that is not in the tree, and an `[optimizer]` that its ranks would refuse.

    Raises:
        ConfigError: It names what was looked for, and the nearest name that is there.
    """
    if task is None:
        return
    module, _, name = task.partition(":")
    place = module.replace(".", "/")
    files = [f"{root}{place}{end}" for root in ("", *(f"{each}/" for each in path)) for end in (".py", "/__init__.py")]
    found = next(((file, text) for file in files if (text := reader(file)) is not None), None)
    if found is None:
        elsewhere = any(reader(f"src/{place}{end}") is not None for end in (".py", "/__init__.py"))
        works = 'project.path = ["src"] finds the one in src' if elsewhere else "add it"
        raise ConfigError(f"line.toml: project.task: wanted {task!r}, found neither {files[0]} nor {files[1]}; {works}")
    file, text = found
    names = _names(file, text)
    if name not in names and "*" not in names:
        near = difflib.get_close_matches(name, names, n=1)
        works = f"write {module}:{near[0]}" if near else f"its classes: {', '.join(_classes(text)[:8]) or 'none'}"
        raise ConfigError(f"line.toml: project.task: wanted {name} in {file}, found no such name; {works}")
    if optimizer and _leaves_optimizer(text, name):
        read_optimizer(optimizer)


def _leaves_optimizer(text: bytes, name: str) -> bool:
    """Does the class surely not build its own optimizer: neither it nor a base, all of them here in sight?"""
    if b"build_optimizer" in text:
        return False
    classes = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}
    waiting, seen = [name], set[str]()
    while waiting:
        found = classes.get(each := waiting.pop())
        if found is None or found.keywords or found.decorator_list:
            return False
        seen.add(each)
        bases = [base.id if isinstance(base, ast.Name) else "" for base in found.bases]
        waiting += [base for base in bases if base not in seen]
    return True


def _classes(text: bytes) -> list[str]:
    """Classes at the top of a module: what a task can be."""
    return [node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]


def _names(file: str, text: bytes) -> set[str]:
    """Names that a module binds, wherever; `*` where it imports all of another's."""
    try:
        tree = ast.parse(text, file)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        said = error if isinstance(error, (SyntaxError, ValueError)) else "it is nested too deeply"
        raise ConfigError(f"line.toml: project.task: {file} is no Python: {said}") from error
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update((alias.asname or alias.name) for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names
