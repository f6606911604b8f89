"""Texts of the source: they stand without the name above them, and what they name exists."""

import ast
import builtins
import inspect
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

SECTIONS = ("Args", "Attributes", "Raises", "Returns", "Source")
# fmt: off
FOREIGN = {
    "Abort", "OnError", "OnTransientError", "R", "_created", "accuracy", "adapter_model", "data_proxy", "file_sd",
    "gold", "lm_head", "loss_parallel", "multihead", "output_0", "precondition_frequency", "read_image",
    "safetensors", "storageUri", "topologyDomain",
}
# fmt: on
"""Names that texts quote from other programs, or as examples; no code here has them."""
PLACEHOLDERS = {"each": 2395, "found": 2088, "known": 279, "left": 239, "said": 274}
"""Names of variables that say nothing about what they hold, with the most uses: a change may lower a number."""

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def texts(found: tuple[ast.AST, ...]) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring, attribute doc and help text."""
    for node in found:
        if isinstance(node, Documented):
            for value in docs(node):
                yield from strings(value)
        if isinstance(node, ast.keyword) and node.arg == "help":
            yield from strings(node.value)


def docs(node: Documented) -> Iterator[ast.expr]:
    """The docstring of `node`, and the docs of its attributes."""
    for before, statement in zip([None, *node.body], node.body, strict=False):
        if isinstance(statement, ast.Expr) and (before is None or isinstance(before, (ast.Assign, ast.AnnAssign))):
            yield statement.value


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
    root = SOURCE.parents[1]
    programs = [path for folder in ("benchmarks", "tools") for path in (root / folder).rglob("*.py")]
    found = [
        f"{path.relative_to(root)}:{line} {text.partition(chr(10))[0]}"
        for path, each in (nodes() | {path: tuple(ast.walk(ast.parse(path.read_text()))) for path in programs}).items()
        for line, text in texts(each)
        if leans(text)
    ]
    assert not found, "\n".join(found)


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


def test_variables_have_a_noun_of_what_they_hold():
    names = Counter(
        node.id for each in nodes().values() for node in each if isinstance(node, ast.Name) and node.id in PLACEHOLDERS
    )
    assert {name: count for name, count in names.items() if count > PLACEHOLDERS[name]} == {}


def test_sections_and_backticks_name_what_exists():
    files = nodes()
    classes = {*dir(builtins), *FOREIGN}.union(*map(imported_and_classes, files.values()))
    known = classes.union(*map(code_words, files.values()), *((path.stem, *path.parts) for path in files))
    wrong = [
        f"{path.relative_to(SOURCE)}:{text}"
        for path, found in files.items()
        for text in unknown(found, known=known, classes=classes)
    ]
    assert not wrong, "wanted names that exist, found:\n" + "\n".join(wrong)


def code_words(found: tuple[ast.AST, ...]) -> set[str]:
    """Names in a file, and words of its literals; those of its docs are no evidence."""
    passed = {id(value) for node in found if isinstance(node, Documented) for value in docs(node)}
    words: set[str] = set()
    for node in found:
        if id(node) not in passed:
            for _, value in ast.iter_fields(node):
                for each in value if isinstance(value, list) else (value,):
                    if isinstance(each, str):
                        words.update(re.findall(r"\w+", each))
    return words


def imported_and_classes(found: tuple[ast.AST, ...]) -> set[str]:
    """What a `Raises` section may name of a file."""
    classes = {node.name for node in found if isinstance(node, ast.ClassDef)}
    return classes.union(*(node.name.split(".") for node in found if isinstance(node, ast.alias)))


def unknown(found: tuple[ast.AST, ...], *, known: set[str], classes: set[str]) -> Iterator[str]:
    """Line and name of each argument that a function lacks, error that is not in `classes`, quoted name not `known`."""
    for node in found:
        if not isinstance(node, Documented):
            continue
        for line, text in (each for value in docs(node) for each in strings(value)):
            quoted = re.findall(r"(?<!`)`([A-Za-z_][\w.]*)(?:\(\))?`(?!`)", text)
            bad = [name for name in quoted if not known.issuperset(filter(None, name.split(".")))]
            bad += [name for name in entries(text, "Raises") if not classes.issuperset(name.split("."))]
            bad += [name for name in entries(text, "Args") if name not in parameters(node)]
            yield from (f"{line} {name}" for name in bad)


def entries(text: str, section: str) -> Iterator[str]:
    """Names that begin an entry of a section of a docstring."""
    current = ""
    for line in inspect.cleandoc(text).splitlines():
        if (head := line.removesuffix(":")) in SECTIONS and head != line:
            current = head
        elif current == section and (entry := re.match(r"(?: {4})?([\w.]+(?:, [\w.]+)*):(?: |$)", line)):
            yield from entry[1].split(", ")


def parameters(node: Documented) -> set[str]:
    """Names that a call of `node` may give: of a class those of its fields or its `__init__`."""
    if isinstance(node, ast.ClassDef):
        fields = {
            each.target.id
            for each in node.body
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        }
        made = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
        return fields.union(*map(parameters, made))
    if isinstance(node, ast.Module):
        return set()
    return {each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)}


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ('def f(path):\n    """Reads.\n\n    Args:\n        path: A file.\n        old: Gone.\n    """', ["old"]),
        ('class C:\n    """Reads.\n\n    Args:\n        old: Gone.\n    """\n    path: str', ["old"]),
        ('class C:\n    def __init__(self, path):\n        """Args:\n            old: Gone.\n        """', ["old"]),
        (
            'def f():\n    """Reads.\n\n    Raises:\n        OldError: Gone.\n        OSError: Closed.\n    """',
            ["OldError"],
        ),
        ('PATH = 1\n"""As `old` has it, or `PATH`."""', ["old"]),
        ('def f(path):\n    """A file of `path.old()`, ``code`` or `two words`."""', ["path.old"]),
        ('NAME = "new"\n"""Word, `new` or `old`."""', ["old"]),
    ],
)
def test_a_name_that_does_not_exist_is_seen(source, wrong):
    found = tuple(ast.walk(ast.parse(source)))
    named = unknown(found, known=code_words(found), classes={"OSError"})
    assert [each.partition(" ")[2] for each in named] == wrong
