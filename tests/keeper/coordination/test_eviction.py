"""A node that holds the gang up is left out where the plan has a size for the others, and costs no restart."""

import json

import pytest
from tests.keeper.coordination.nodes import SAVER, poll

from gangline.keeper.ipc.requests import EvictionRequest, read_eviction, request_eviction


def ask(gang, rank, generation=0):
    wish = {"generation": generation, "rank": rank, "reason": f"rank {rank} is slow"}
    (gang.home(0) / "evict.json").write_text(json.dumps(wish))


def test_gang_continues_without_the_node_of_a_slow_rank(nodes):
    gang = nodes(SAVER, num_nodes=3, sizes=(1, 2), restarts=1, LAST="9")
    gang.wait_for_step()
    ask(gang, 1)
    poll(lambda: [each["after"] for each in gang.events("resized")] == [2])
    assert "node 1 is left out: rank 1 is slow" in gang.events("resized")[0]["reason"]
    assert [each["node"] for each in gang.events("evicted")] == [1]
    poll(lambda: gang.status(2)["ranks"].keys() == {"1"})
    assert gang.status(1)["ranks"] == {}
    for node in range(3):
        gang.signal(node)
    ends = [gang.end(node) for node in range(3)]
    assert [end.restarts for end in ends] == [0] * 3, ends


def test_node_stays_where_it_leads_or_no_size_fits_the_others_and_the_gang_says_so(nodes):
    gang = nodes(SAVER, num_nodes=2, LAST="9")
    gang.wait_for_step()
    ask(gang, 1)
    poll(lambda: len(gang.events("not_evicted")) == 1)
    assert "no size for 1 nodes" in gang.events("not_evicted")[0]["reason"]
    for node in range(2):
        gang.signal(node)
    assert [gang.end(node).restarts for node in range(2)] == [0, 0]


def test_node_that_leads_stays_though_the_others_could_continue(nodes):
    gang = nodes(SAVER, num_nodes=2, sizes=(1,), LAST="9")
    gang.wait_for_step()
    ask(gang, 0)
    poll(lambda: len(gang.events("not_evicted")) == 1)
    assert gang.events("not_evicted")[0]["reason"] == "it leads the gang"
    for node in range(2):
        gang.signal(node)
    assert [gang.end(node).restarts for node in range(2)] == [0, 0]


@pytest.mark.parametrize("text", ["{", "[]", '{"rank": 1}', '{"generation": 1, "rank": "1", "reason": ""}'])
def test_wish_of_another_generation_and_what_is_not_a_wish_bind_no_one(tmp_path, text):
    wish = EvictionRequest(generation=1, rank=2, reason="rank 2 is slow")
    request_eviction(tmp_path, wish)
    assert [read_eviction(tmp_path, generation) for generation in (0, 1, 2)] == [None, wish, None]
    (tmp_path / "evict.json").write_text(text)
    assert read_eviction(tmp_path, 1) is None
