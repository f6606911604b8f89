"""Bounds next to keys: the loader of a file and its published schema refuse the same numbers."""

import json
import math
from dataclasses import is_dataclass
from typing import get_args, get_type_hints

import pytest
from jsonschema import Draft202012Validator
from tools.json_schemas import schema_of

from gangline.spec.bounds import Bound, split_bounds
from gangline.spec.config.fabric import FabricFile
from gangline.spec.config.line import Line
from gangline.spec.config.site import Site
from gangline.spec.config.structure import build_line


def bounds_below(cls, seen):
    """Every bound of a table and of the tables in it."""
    if cls in seen:
        return
    seen.add(cls)
    for kind in get_type_hints(cls, include_extras=True).values():
        yield from split_bounds(kind)[1]
        for inner in (kind, *get_args(kind), *(deep for each in get_args(kind) for deep in get_args(each))):
            if is_dataclass(inner):
                yield from bounds_below(inner, seen)


BOUNDS = {each for cls in (Line, Site, FabricFile) for each in bounds_below(cls, set())}
LINE = {"project": {"name": "a", "task": "model:Task"}, "train": {"steps": 8, "global_batch": 8}}


@pytest.mark.parametrize("bound", sorted(BOUNDS, key=repr), ids=repr)
def test_a_schema_has_the_limits_that_a_loader_keeps(bound):
    limits = [bound.least, bound.above, bound.most, bound.below]
    edges = [float(limit) for limit in limits if limit is not None and math.isfinite(limit)]
    schema = Draft202012Validator({"type": "number", **bound.keywords})
    for edge in edges:
        for value in (edge, math.nextafter(edge, math.inf), math.nextafter(edge, -math.inf)):
            assert schema.is_valid(value) == bound.holds(value)
    assert not bound.holds(math.nan)


@pytest.mark.parametrize(
    ("table", "key", "value", "wanted"),
    [
        ("train", "steps", 0, "at least 1"), ("train", "steps", 10**10 + 1, "at most 10000000000"),
        ("train", "clip_norm", 0, "a norm above 0"), ("data", "holdout", 0.6, "a share in (0, 0.5]"),
        ("data", "workers", -1, "at least 0"), ("search", "trials", 1001, "1 to 1000"),
    ],
)  # fmt: skip
def test_a_number_out_of_bounds_is_refused_by_its_key_in_file_and_schema(table, key, value, wanted):
    plain = LINE | {table: LINE.get(table, {}) | {key: value}}
    line, problems = build_line(plain, None)
    assert line is None
    assert [(each.key, each.wanted) for each in problems] == [(f"{table}.{key}", wanted)]
    [error] = Draft202012Validator(schema_of(Line)).iter_errors(json.loads(json.dumps(plain)))
    assert list(error.path) == [table, key]


def test_bounds_of_a_table_of_numbers_hold_for_each():
    schema = schema_of(Site)["$defs"]["GpuTable"]["properties"]["flops_per_second"]
    assert schema["additionalProperties"] == {"type": "number", "minimum": 1e6, "maximum": 1e24}


def test_words_of_a_bound_are_its_limits_unless_it_has_its_own():
    assert Bound(least=2, most=9).wanted == "a number from 2 to 9"
    assert Bound(above=0, below=1).wanted == "above 0 and below 1"
    assert Bound(least=1, words="a count").wanted == "a count"
