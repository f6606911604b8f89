"""Reasons are for people: no branch reads a sentence back, it asks a verdict or a field."""

import ast
from collections.abc import Iterator

from tests.source import SOURCE, nodes

SENTENCES = {"reason", "why", "missing", "origin"}
"""Fields that hold a sentence."""
READERS = {
    "startswith",
    "endswith",
    "removeprefix",
    "removesuffix",
    "partition",
    "rpartition",
    "split",
    "find",
    "index",
}


def is_sentence(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in SENTENCES


def readings(found: tuple[ast.AST, ...]) -> Iterator[int]:
    """Lines that look into a sentence: by a method of text, for a word in it, by a regular expression."""
    for node in found:
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            if is_sentence(node.comparators[0]):
                yield node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            has_text = is_sentence(node.func.value) and node.func.attr in READERS
            is_search = node.func.attr in ("match", "fullmatch", "search") and any(map(is_sentence, node.args))
            if has_text or is_search:
                yield node.lineno


def test_no_branch_reads_a_sentence_back():
    read = [f"{path.relative_to(SOURCE)}:{line}" for path, found in nodes().items() for line in readings(found)]
    assert not read


def test_all_ways_of_reading_are_found():
    ways = [
        'each.reason.removeprefix("no fit: ")', 'trial.reason.startswith("pruned")', '"pruned" in trial.reason',
        'each.forecast.missing.split(":")', 'PATTERN.match(self.why)', 're.search("n=", each.reason)',
    ]  # fmt: skip
    for way in ways:
        assert list(readings(tuple(ast.walk(ast.parse(way))))) == [1], way
    plain = 'each.reason == "" and text.startswith("no")'
    assert not list(readings(tuple(ast.walk(ast.parse(plain)))))
