"""The same gradient bits give the same parameters under any layout, geometry, ceiling and number of ranks."""

import pytest
import torch
from tests.optim.executors.layouts import MATRICES, stepped
from tests.train.parallel.compress.ranks import on_ranks


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
    assert sum(rank["computed"] for rank in found) == 4 * MATRICES


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
    _require_equal(on_ranks(size, stepped, layout, 4, options), alone)
