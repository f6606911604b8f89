"""What `--now` makes of a plan whose servers are not free."""

from types import SimpleNamespace

import pytest
from tests.planner.cases import gpus, line
from tests.planner.transformers import EIGHT, H100, transformer

from gangline.errors import CapacityError
from gangline.line.stages.preview import choice_now
from gangline.planner.choice import choose_plan
from gangline.spec.devices import FreeServers


def planned(inventory, **more):
    profile = transformer(**EIGHT | more, sequence=4096)
    asked = line(batch=512, strategy="fsdp")
    return SimpleNamespace(choice=choose_plan(asked, H100, inventory, profile), inventory=inventory)


def now(free, *, holders=("gang-x",), **more):
    first = planned(gpus(8, 4), **more)
    return first.choice, choice_now(
        first, FreeServers(free=free, holders=holders), lambda devices: planned(devices, **more)
    )


def test_a_plan_whose_servers_are_free_is_the_plan():
    first, found = now(4)
    assert found == first


def test_a_plan_on_the_free_servers_wins_and_the_larger_ones_name_the_holders():
    first, found = now(2)
    assert (found.mesh.world_size, found.num_nodes) == (16, 2)
    assert found.candidates[0].verdict == "chosen"
    waiting = [each for each in found.candidates if each.verdict == "no_servers"]
    assert waiting[0].name == first.name
    assert waiting[0].reason == "32 ranks: 2 servers are free now; gang-x hold others"
    assert [each.verdict for each in found.candidates].count("chosen") == 1


def test_without_a_free_server_it_is_a_matter_of_capacity():
    with pytest.raises(CapacityError, match="wanted 4 servers for fsdp-32, found none free; gang-x hold others"):
        now(0)


def test_what_the_free_servers_cannot_hold_is_a_matter_of_capacity_too():
    with pytest.raises(CapacityError, match="1 servers that are free, found none"):
        now(1, width=16_384, feed=57_344, holders=())
