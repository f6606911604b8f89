"""Writes `python.md`, the reference of the Python API, from docstrings: `python -m tools.python_page docs/reference`.

Read as syntax trees, so that no framework has to be installed for it.
"""

import ast
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

from gangline import train

SOURCE = Path(train.__file__).parents[1]
OPENING = """# Python

What model repositories import, with the docstrings of the code. Guides: [a task](../guides/model-repository.md),
[programs of any framework](../guides/other-frameworks.md), [callbacks](../guides/integrations.md).

Generated from the code; `make schemas` regenerates it.
"""
PLACES = {
    "Loss": "train/task.py", "ParallelHints": "train/task.py", "Task": "train/task.py",
    "Program": "train/api/program.py",
    "Session": "train/api/session.py", "parallelize": "train/api/session.py", "heartbeat": "keeper/ipc/heartbeat.py",
}  # fmt: skip
"""Where each public name of `gangline.train` is written; the protocol `Task` is what a task is held against."""
LIBRARIES = ("transformers", "lightning", "accelerate")


def python_page() -> str:
    """Markdown: every name of `gangline.train`, then of `gangline.integrations`."""
    parts = [OPENING, "## gangline.train"]
    for name in sorted({*train.__all__, "Task"}):
        file = SOURCE / PLACES[name]
        if file.stem == name:
            parts += list(_module(file, f"gangline.train.{name}"))
        else:
            parts += list(_named(file, name, f"gangline.train.{name}"))
    parts += ["## gangline.integrations"]
    parts += list(_named(SOURCE / "integrations" / "joined.py", "Joined", "gangline.integrations.joined.Joined"))
    for library in LIBRARIES:
        parts += list(_module(SOURCE / "integrations" / f"{library}.py", f"gangline.integrations.{library}"))
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _module(file: Path, title: str) -> Iterator[str]:
    tree = ast.parse(file.read_text("utf-8"))
    yield f"### `{title}`"
    yield _doc(tree)
    for each in tree.body:
        if isinstance(each, ast.ClassDef) and not each.name.startswith("_"):
            yield from _class(each, f"{title}.{each.name}")
        elif isinstance(each, ast.FunctionDef) and not each.name.startswith("_"):
            yield _function(each)


def _named(file: Path, name: str, title: str) -> Iterator[str]:
    tree = ast.parse(file.read_text("utf-8"))
    found = next(each for each in tree.body if getattr(each, "name", "") == name)
    if isinstance(found, ast.ClassDef):
        yield from _class(found, title)
    else:
        assert isinstance(found, ast.FunctionDef), name
        yield f"### `{title}`"
        yield _function(found)


def _class(node: ast.ClassDef, title: str) -> Iterator[str]:
    yield f"### `{title}`"
    yield _doc(node)
    for before, each in zip([None, *node.body], node.body, strict=False):
        if isinstance(each, ast.Expr) and isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name):
            text = inspect.cleandoc(str(ast.literal_eval(each.value)))
            yield f"- `{before.target.id}: {ast.unparse(before.annotation)}`: {' '.join(text.split())}"
        elif isinstance(each, ast.FunctionDef) and (not each.name.startswith("_") or each.name == "__init__"):
            yield _function(each)


def _function(node: ast.FunctionDef) -> str:
    """Its signature, and the first paragraph and the sections of its docstring."""
    is_property = any(isinstance(each, ast.Name) and each.id == "property" for each in node.decorator_list)
    arguments = "" if is_property else f"({ast.unparse(node.args).removeprefix('self').removeprefix(', ')})"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None and node.name != "__init__" else ""
    doc = _doc(node)
    return f"- `{node.name}{arguments}{returns}`" + (f"\n{_indented(doc)}" if doc else "")


def _doc(node: "ast.Module | ast.ClassDef | ast.FunctionDef") -> str:
    """The docstring as it is written, examples and sections as code."""
    text = (ast.get_docstring(node) or "").replace("<", "&lt;")
    parts = []
    for part in text.split("\n\n"):
        head = part.split(":", 1)[0]
        is_code = part.startswith("    ") or head in ("Args", "Raises", "Returns", "Source")
        parts.append("\n".join(f"    {line}" for line in part.splitlines()) if is_code else part)
    return "\n\n".join(parts).replace("&lt;", "<") if "    " in text else text


def _indented(text: str) -> str:
    return "\n" + "\n".join(f"    {line}" if line else "" for line in text.splitlines())


if __name__ == "__main__":
    page = Path(sys.argv[1]) / "python.md"
    page.write_text(python_page(), "utf-8")
    sys.stdout.write(f"{page}\n")
