"""Sentences of the source: docstrings, attribute docs and help texts stand without the name above them."""

import ast
import re
from collections import Counter
from collections.abc import Iterator

import pytest
from tests.source import SOURCE, nodes

# fmt: off
PREPOSITIONS = {
    "about", "above", "after", "along", "among", "around", "as", "at", "before", "behind", "below", "between", "beyond",
    "by", "despite", "during", "for", "from", "in", "into", "like", "likewise", "of", "on", "onto", "over",
    "since", "than", "that", "through", "to", "towards", "under", "until", "upon", "via", "with", "within",
    "without",
}
# fmt: on
"""Words with which a text leans on the name above it: `seconds` "Of one try." says nothing in a list of options."""

LEANING = {
    "cli": 17, "data": 2, "infer": 1, "keeper": 19, "launch": 63, "line": 53, "serve": 3, "spec": 189,
    "train": 51,
}  # fmt: skip
"""Texts of rooms that are not mended yet, counted; a number only falls, and a room that is not listed has none."""


def texts(found: tuple[ast.AST, ...]) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring, attribute doc and help text."""
    for node in found:
        body = node.body if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) else []
        for before, statement in zip([None, *body], body, strict=False):
            if isinstance(statement, ast.Expr) and (before is None or isinstance(before, (ast.Assign, ast.AnnAssign))):
                yield from strings(statement.value)
        if isinstance(node, ast.keyword) and node.arg == "help":
            yield from strings(node.value)


def strings(node: ast.expr) -> Iterator[tuple[int, str]]:
    """The text of a literal, of an f-string what stands before its first value."""
    first = node.values[0] if isinstance(node, ast.JoinedStr) and node.values else node
    if isinstance(first, ast.Constant) and isinstance(first.value, str):
        yield first.lineno, first.value


def leans(text: str) -> bool:
    """Does the text begin with a preposition?"""
    word = re.match(r"\w+", text)
    return word is not None and word[0].lower() in PREPOSITIONS


def test_texts_begin_with_no_preposition():
    found = [
        (path.relative_to(SOURCE), line, text.partition("\n")[0])
        for path, each in nodes().items()
        for line, text in texts(each)
        if leans(text)
    ]
    counts = Counter(path.parts[0] for path, _, _ in found)
    wrong = {room for room, count in counts.items() if count > LEANING.get(room, 0)}
    shown = "\n".join(f"{path}:{line} {text}" for path, line, text in found if path.parts[0] in wrong)
    assert not wrong, f"wanted {LEANING}, found {dict(counts)}:\n{shown}"


@pytest.mark.parametrize(
    "source",
    [
        '"""Of a module."""',
        'class C:\n    """As another one."""',
        'def f():\n    """By name."""',
        'async def f():\n    """In a thread: waits."""',
        'SECONDS = 1.0\n"""Of one try."""',
        'class C:\n    seconds: float = 1.0\n    """Likewise."""',
        'typer.Option(help="That are trained on.")',
        'typer.Option(help=f"For {LIMIT} seconds.")',
    ],
)
def test_a_text_that_leans_on_its_name_is_seen(source):
    assert [leans(text) for _, text in texts(tuple(ast.walk(ast.parse(source))))] == [True]
