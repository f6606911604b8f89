"""Each key of the files is read, not only declared, checked and documented: as far as its name tells, which for `url`
is not far."""

import ast
from dataclasses import fields, is_dataclass
from functools import cache
from typing import get_args, get_type_hints

import pytest
from tests.source import SOURCE, nodes

from gangline.spec.config.fabric import FabricFile
from gangline.spec.config.line import Line
from gangline.spec.config.site import Site

CONFIG = SOURCE / "spec" / "config"
READERS = {"lock.py", "secrets.py", "optimizer.py"}
"""Of `spec/config`; its other files declare keys, check them and build them from text."""

CLAIMS = {"fabric.group_size", "fabric.oversubscription", "fabric.groups.leaves"}
"""Keys that rules hold against the rest of their file, and nothing else."""


@cache
def names_read():
    """Attributes that are loaded, and strings that may name one, in all code but that of declarations and rules."""
    found = set()
    for path, each in nodes().items():
        if path.parent == CONFIG and path.name not in READERS:
            continue
        for node in each:
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                found.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                found.add(node.value)
    return found


def keys(table, above=()):
    for name, kind in get_type_hints(table).items():
        if name not in {each.name for each in fields(table)}:
            continue
        yield ".".join([*above, name])
        for inner in (kind, *get_args(kind)):
            for each in (inner, *get_args(inner)):
                if isinstance(each, type) and is_dataclass(each):
                    yield from keys(each, (*above, name))


def test_no_key_is_declared_that_no_code_reads():
    read = names_read()
    declared = {key for table in (Line, Site, FabricFile) for key in keys(table)} - CLAIMS
    assert sorted(key for key in declared if key.rpartition(".")[2] not in read) == []


@pytest.mark.parametrize("name", ["max_ranks", "prometheus_url", "presigned", "no_such_key"])
def test_a_key_without_a_reader_is_found(name):
    assert name not in names_read()
