"""What the source says about each field: the string below it. One text for readers of code, schema and reference."""

import ast
import inspect
import sys
from functools import cache
from itertools import pairwise


@cache
def field_docs(cls: type) -> dict[str, str]:
    """Field name to its docstring in one line; fields without one are left out."""
    body = _class_body(inspect.getsource(sys.modules[cls.__module__]), cls.__name__)
    docs: dict[str, str] = {}
    for field, text in pairwise(body):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str):
            docs[field.target.id] = " ".join(text.value.value.split())
    return docs


def class_doc(cls: type) -> str:
    """Docstring of a class in one line; the one that dataclasses write themselves is none."""
    text = cls.__doc__ or ""
    return "" if text.startswith(f"{cls.__name__}(") else " ".join(text.split())


def _class_body(source: str, name: str) -> list[ast.stmt]:
    tree = ast.parse(source)
    return next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
