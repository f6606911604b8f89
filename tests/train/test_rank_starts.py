"""What the environment of ranks says of the plan."""

import pytest
from tests.train.gang import tiny_plan

from gangline.train.rank_starts import collectives_environ


@pytest.mark.parametrize(
    ("device", "collectives", "wanted"),
    [
        ("cuda", "ring", {"NCCL_ALGO": "Ring"}),
        ("cuda", "tree", {"NCCL_ALGO": "Tree"}),
        ("cuda", "auto", {}),
        ("cpu", "ring", {}),
    ],
)
def test_nccl_hears_of_ring_or_tree_where_it_is_there(device, collectives, wanted):
    assert collectives_environ(tiny_plan(device=device, collectives=collectives)) == wanted
