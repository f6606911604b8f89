"""The same gradient bits give the same parameters under any layout, geometry, ceiling and number of ranks."""

import pytest
import torch
from tests.optim.executors.layouts import MATRICES, SHAPES, make, stepped, stepped_by_each
from tests.train.parallel.compress.ranks import on_ranks

from gangline.errors import ConfigError


@pytest.fixture(scope="module")
def alone():
    return stepped("local")


def _require_equal(found, alone):
    for rank in found:
        for name, each in alone["parameters"].items():
            assert torch.equal(rank["parameters"][name], each), name
        for name, each in rank["momentum"].items():
            assert torch.equal(each, alone["momentum"][name]), name
    held = {name: value for rank in found for name, value in rank["owner"].items()}
    assert held.keys() == alone["owner"].keys()
    assert all(torch.equal(value, alone["owner"][name]) for name, value in held.items())
    assert sum(rank["computed"] for rank in found) == alone["computed"]
    assert all(rank["padding"] == 0 for rank in found if rank["geometry"] != "permuted")


@pytest.mark.parametrize(
    ("size", "layout", "options"),
    [
        (2, "copies", {}),
        (2, "owned", {"geometry": "owner", "bucket_elements": 100}),
        (2, "rows", {}),
        (2, "columns", {"c_max_bytes": 400}),
        (4, "copies", {"bucket_elements": 200}),
        pytest.param(4, "rows", {"c_max_bytes": 400}, marks=pytest.mark.long),
        pytest.param(4, "hsdp", {"c_max_bytes": 400}, marks=pytest.mark.long),
        pytest.param(4, "both", {}, marks=pytest.mark.long),
        (4, "twice", {}),
    ],
)
def test_any_layout_gives_the_bits_of_one_process(alone, size, layout, options):
    assert alone["computed"] == 4 * MATRICES
    _require_equal(on_ranks(size, stepped, layout, 4, options), alone)


@pytest.mark.parametrize(
    ("size", "layout"), [(2, "copies"), (2, "rows"), pytest.param(4, "hsdp", marks=pytest.mark.long)]
)
def test_what_travels_in_bfloat16_is_rounded_alike_in_any_layout(alone, size, layout):
    options = {"element_bytes": 2}
    wanted = stepped("local", 4, options)
    assert not torch.equal(wanted["parameters"]["qkv"], alone["parameters"]["qkv"])
    _require_equal(on_ranks(size, stepped, layout, 4, options), wanted)


@pytest.mark.parametrize(
    ("size", "layout"), [(2, "copies"), pytest.param(4, "hsdp", marks=pytest.mark.long)], ids=["copies", "hsdp"]
)
def test_copies_that_repeat_all_updates_exchange_none_and_have_all_state(alone, size, layout):
    found = on_ranks(size, stepped, layout, 4, {"copies": "repeat"})
    for rank in found:
        for name, each in alone["parameters"].items():
            assert torch.equal(rank["parameters"][name], each), name
        assert rank["sent"] == 0
    assert sum(rank["computed"] for rank in found) == 2 * alone["computed"]
    copies = [found[:1], found[1:]] if layout == "copies" else [found[:2], found[2:]]
    for ranks in copies:
        held = {name: value for rank in ranks for name, value in rank["owner"].items()}
        assert held.keys() == alone["owner"].keys()
        assert all(torch.equal(value, alone["owner"][name]) for name, value in held.items())


def _refusals():
    found = []
    for layout, options in (("owned", {"copies": "repeat"}), ("copies", {"copies": "repeat", "team": "auto"})):
        try:
            make(layout, **options)
        except ConfigError as error:
            found.append(str(error))
    return found


def test_copies_that_repeat_all_have_nothing_to_share():
    for found in on_ranks(2, _refusals):
        assert "zero1 deals it out to them" in found[0]
        assert "nothing to share" in found[1]


LAYOUTS = {
    2: ("copies", "owned", "rows", "columns"),
    4: ("copies", "owned", "rows", "columns", "hsdp", "both", "twice"),
}
CONTIGUOUS = {name: shape for name, shape in SHAPES.items() if name not in ("gates", "qkv")}
"""Interleaved rows have the third geometry alone."""


def _cases(size, rule):
    """Every layout with every geometry, and with ceilings that make several groups and buckets."""
    plain = {"rule": rule, "refresh": "together"}
    for layout in LAYOUTS[size]:
        yield layout, plain | {"c_max_bytes": 400, "bucket_elements": 100}
        for geometry in ("contiguous", "permuted", "owner"):
            yield layout, plain | {"geometry": geometry, "shapes": CONTIGUOUS, "bucket_elements": 200}


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["muon", "shampoo", "soap"])
@pytest.mark.parametrize("size", LAYOUTS)
def test_every_rule_gives_the_bits_of_one_process_under_every_layout_and_geometry(size, rule):
    cases = list(_cases(size, rule))
    assert len(cases) == 4 * len(LAYOUTS[size])
    for (_, options), *found in zip(cases, *on_ranks(size, stepped_by_each, cases), strict=True):
        wanted = stepped("local", 4, options)
        assert wanted["computed"] > 0
        _require_equal(found, wanted)
