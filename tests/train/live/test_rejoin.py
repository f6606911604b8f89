"""How ranks meet: who tried in vain before meets who is new."""

from datetime import timedelta

import pytest
import torch.distributed as dist

from gangline.train.runtime import rendezvous
from gangline.train.runtime.torch_compat import HashStore


def test_a_rank_that_tried_in_vain_waits_under_the_name_that_a_new_one_has():
    """The peer died before its links were made: no group is left, and the next ones are named as in a new process."""
    with pytest.raises(RuntimeError, match="timeout"):
        rendezvous._make_groups(HashStore(), "cpu", rank=0, world_size=2, links=timedelta(seconds=0.5))
    assert not dist.is_initialized()
    rendezvous.join_alone("cpu")
    try:
        assert dist.group.WORLD.group_name == "0"
    finally:
        rendezvous.leave()
