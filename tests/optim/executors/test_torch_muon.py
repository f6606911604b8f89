"""Momentum of `torch.optim.Muon` on ranks: each takes the part that it keeps."""

import pytest
from tests.optim.executors.layouts import SHAPES, momentum_of_torch
from tests.train.parallel.compress.ranks import on_ranks


@pytest.mark.parametrize(
    ("layout", "placed"),
    [("copies", False), ("owned", False), ("rows", False), ("columns", False), ("rows", True), ("columns", True)],
)
def test_ranks_take_what_they_keep_of_saved_momentum(layout, placed):
    found = on_ranks(2, momentum_of_torch, layout, placed)
    assert all(same == kept for same, kept in found)
    assert set().union(*(kept for _, kept in found)) == {*SHAPES}
    assert (layout == "owned") == any(kept != {*SHAPES} for _, kept in found)


@pytest.mark.parametrize("layout", ["both", "twice", "hsdp"])
def test_so_do_ranks_of_two_dimensions(layout):
    assert all(same == {*SHAPES} for same, _ in on_ranks(4, momentum_of_torch, layout, False))
