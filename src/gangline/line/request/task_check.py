"""Check of a line's task by its source: whether it exists and builds its own optimizer. User code is not imported."""

import ast
import difflib
from collections.abc import Callable, Sequence
from typing import Any

from gangline.errors import ConfigError
from gangline.spec.config.optimizer import read_optimizer

MOST_MODULE_BYTES = 500_000
"""Size limit of the module of a task."""


def check_task(
    task: str | None, reader: Callable[[str], bytes | None], *, path: Sequence[str] = (),
    optimizer: dict[str, Any] | None = None,
) -> None:  # fmt: skip
    """Raise ConfigError for a `module:Class` that is not in the tree, or an invalid `[optimizer]`.

    The message names what was searched for and the nearest name that exists.
    """
    if task is None:
        return
    module, _, name = task.partition(":")
    stem = module.replace(".", "/")
    files = [f"{root}{stem}{end}" for root in ("", *(f"{each}/" for each in path)) for end in (".py", "/__init__.py")]
    found = next(((file, text) for file in files if (text := reader(file)) is not None), None)
    if found is None:
        in_src = any(reader(f"src/{stem}{end}") is not None for end in (".py", "/__init__.py"))
        advice = 'project.path = ["src"] finds the one in src' if in_src else "add it"
        raise ConfigError(
            f"line.toml: project.task: wanted {task!r}, found neither {files[0]} nor {files[1]}; {advice}"
        )
    file, text = found
    names = _names(file, text)
    if name not in names and "*" not in names:
        near = difflib.get_close_matches(name, names, n=1)
        advice = f"write {module}:{near[0]}" if near else f"its classes: {', '.join(_classes(text)[:8]) or 'none'}"
        raise ConfigError(f"line.toml: project.task: wanted {name} in {file}, found no such name; {advice}")
    if optimizer and _uses_line_optimizer(text, name):
        read_optimizer(optimizer)


def _uses_line_optimizer(text: bytes, name: str) -> bool:
    """Whether certainly neither the class nor a base, all of this module, defines `build_optimizer`."""
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
    """Top-level classes of a module, any of which a task can be."""
    return [node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]


def _names(file: str, text: bytes) -> set[str]:
    """Names that a module binds anywhere; with `*` if it imports all names of another."""
    try:
        tree = ast.parse(text, file)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error if isinstance(error, (SyntaxError, ValueError)) else "it is nested too deeply"
        raise ConfigError(f"line.toml: project.task: {file} is not valid Python: {reason}") from error
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update((alias.asname or alias.name) for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names
