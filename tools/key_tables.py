"""Writes `line.md`, `site.md`, `fabric.md`, the tables of all keys of the files:
`python -m tools.key_tables docs/reference`."""

import ast
import inspect
import json
import sys
import types
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from gangline.spec.bounds import split_bounds
from gangline.spec.codec import to_plain
from gangline.spec.config.fabric import FabricFile
from gangline.spec.config.line import Line
from gangline.spec.config.matrix_options import RULES, MatrixPlanOptions, Route
from gangline.spec.config.matrix_rule import MatrixRuleTable
from gangline.spec.config.optimizer import OPTIONS
from gangline.spec.config.site import Site
from gangline.spec.strategies import STRATEGIES


@cache
def field_docs(cls: type) -> dict[str, str]:
    """Field name to its docstring in one line, `{strategies}` filled in; fields without one are left out."""
    body = _class_body(inspect.getsource(sys.modules[cls.__module__]), cls.__name__)
    docs: dict[str, str] = {}
    for field, text in pairwise(body):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str):
            docs[field.target.id] = " ".join(text.value.value.split()).replace("{strategies}", _strategies())
    return docs


def _strategies() -> str:
    """Names of all strategies, each with its aliases in brackets."""
    return " ".join(
        f"{each.name} ({' '.join(each.aliases)})" if each.aliases else each.name for each in STRATEGIES.values()
    )


def class_doc(cls: type) -> str:
    """Docstring of a class in one line; the one that dataclasses write themselves is none."""
    text = cls.__doc__ or ""
    return "" if text.startswith(f"{cls.__name__}(") else " ".join(text.split())


def _class_body(source: str, name: str) -> list[ast.stmt]:
    tree = ast.parse(source)
    return next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)


_COUNTS = {2: "pair", 3: "triple"}
_WORDS = {int: "integer", float: "number", bool: "boolean", str: "string", Any: "anything"}
_OPENINGS = {
    "line": (
        "What happens to a commit, at the root of a model repository. Every key that is not here is refused, and all\n"
        "problems of a file are reported together. `gangline run --set train.seed=2` changes one for a run.\n"
        "What this version's runtime does not carry out yet is refused when a run is planned, never ignored."
    ),
    "site": (
        "Where it happens: never in the commit. `--site FILE` names it, else `GANGLINE_SITE`, else\n"
        "`gangline/site.toml` in the user's configuration folder, else in `/etc`. The defaults alone are a site.\n"
        "Secrets are references only: `secret:env:NAME`, `secret:file:PATH`, `secret:k8s:NAME/KEY`."
    ),
    "fabric": (
        "The network between servers, as its administrator states it. `--fabric FILE` names it, else\n"
        "`GANGLINE_FABRIC`, else `gangline/fabric.toml` in the user's configuration folder, else in `/etc`.\n"
        "`gangline fabric show` prints what it says. What is left out is not known, and nothing is guessed for it."
    ),
}


def reference_of(name: str, cls: type) -> str:
    """Markdown: a heading and a table of keys for each table of the file."""
    parts = [f"# {name}.toml", _OPENINGS[name], "Generated from `src/gangline/spec`; `make schemas` rewrites it."]
    parts += [_free_section(table, kind, field_docs(cls).get(table, "")) for table, kind in _free_tables(cls)]
    parts += [_section(table, kind) for table, kind in _tables(cls, "")]
    return "\n\n".join(parts) + "\n"


def write_reference(folder: Path) -> list[Path]:
    """Writes a page for each file into `folder`; returns all."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, cls in (("line", Line), ("site", Site), ("fabric", FabricFile)):
        written.append(folder / f"{name}.md")
        written[-1].write_text(reference_of(name, cls), "utf-8")
    return written


def _tables(cls: type, prefix: str) -> Iterator[tuple[str, type]]:
    """Every table with keys of its own, outer ones first."""
    for name, kind in get_type_hints(cls).items():
        inner, suffix = _inner_table(kind)
        if inner is not None:
            path = f"{prefix}{name}{suffix}"
            yield path, inner
            yield from _tables(inner, f"{path}.")


def _free_tables(cls: type) -> list[tuple[str, Any]]:
    """Tables whose keys are names that the user chooses."""
    hints = get_type_hints(cls).items()
    return [(name, kind) for name, kind in hints if get_origin(kind) is dict and not _inner_table(kind)[0]]


def _inner_table(kind: Any) -> tuple[type | None, str]:
    """The table that a value of `kind` is or holds, and how its place is written."""
    if get_origin(kind) is dict:
        return _as_table(get_args(kind)[1]), ".NAME"
    if get_origin(kind) is tuple:
        return _as_table(get_args(kind)[0]), "[]"
    return _as_table(kind), ""


def _as_table(kind: Any) -> type | None:
    """The class of a table, also of one that may be left out."""
    if get_origin(kind) in (Union, types.UnionType):
        return next(filter(None, map(_as_table, get_args(kind))), None)
    return kind if isinstance(kind, type) and is_dataclass(kind) else None


def _free_section(table: str, kind: Any, text: str) -> str:
    if table == "optimizer":
        return f"## `[{table}]`\n\n{text}\n\n{_optimizer_section()}"
    values = get_args(kind)[1]
    shown = "strings, numbers, booleans, lists and tables" if values is Any else f"each a {_words(values)}"
    return f"## `[{table}]`\n\n{text} Any key; its values are {shown}."


def _optimizer_section() -> str:
    """Options of elementwise rules, of matrix rules and of their plans."""
    parts: list[tuple[str, type]] = [
        (f'Options of `elementwise.rule = "{name}"`:', cls) for name, cls in OPTIONS.items()
    ]
    parts += [
        ("A matrix rule has these keys and its options; without one there is `elementwise` alone:", MatrixRuleTable),
        ("What its updates are planned by:", MatrixPlanOptions),
        *((f'Options of `rule = "{name}"`:', cls) for name, cls in RULES.items()),
        (f"Keys of each `[[optimizer.route]]`. {class_doc(Route)}", Route),
    ]  # fmt: skip
    closing = "[Matrix optimizers](../guides/matrix-optimizers.md#keys) says more of them."
    return "\n\n".join([*(f"{opening}\n\n{_rows(cls)}" for opening, cls in parts), closing])


def _section(table: str, cls: type) -> str:
    heading = f"[[{table[:-2]}]]" if table.endswith("[]") else f"[{table}]"
    opening = [class_doc(cls)] if class_doc(cls) else []
    return "\n\n".join([f"## `{heading}`", *opening, *filter(None, [_rows(cls)])])


def _rows(cls: type) -> str:
    """Table of the keys of `cls` that are no tables."""
    hints, docs = get_type_hints(cls, include_extras=True), field_docs(cls)
    rows = [
        f"| `{each.name}` | {_words(hints[each.name])} | {_default(each)} | {_cell(docs.get(each.name, ''))} |"
        for each in fields(cls)
        if _inner_table(hints[each.name])[0] is None
    ]
    return "\n".join(["| key | type | default | meaning |", "|---|---|---|---|", *rows]) if rows else ""


def _words(kind: Any) -> str:
    kind, bounds = split_bounds(kind)
    if bounds:
        return ", ".join([_words(kind), *(each.wanted.removeprefix("a number ") for each in bounds)])
    origin: Any = get_origin(kind)
    inner = get_args(kind)
    if origin is Literal:
        return ", ".join(f"`{json.dumps(word)}`" for word in inner)
    if origin in (Union, types.UnionType):
        return " or ".join(_words(member) for member in inner if member is not type(None))
    if origin is tuple:
        return f"{_COUNTS[len(inner)] if inner[-1] is not Ellipsis else 'list'} of {_words(inner[0])}"
    if origin is dict:
        return f"table of {_words(inner[1])}"
    return _WORDS.get(kind, "table")


def _default(field: Field[Any]) -> str:
    if field.default is MISSING:
        return "required" if field.default_factory is MISSING else "empty"
    if field.default is None:
        return "–"
    return f"`{json.dumps(to_plain(field.default), ensure_ascii=False)}`" if field.default != () else "`[]`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    for path in write_reference(Path(sys.argv[1])):
        sys.stdout.write(f"{path}\n")
