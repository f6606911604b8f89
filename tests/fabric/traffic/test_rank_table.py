"""Table of ranks: by hand, for two groups."""

from gangline.fabric.traffic.rank_table import rank_table


def test_each_rank_has_its_server_group_rail_and_what_its_leaf_carries():
    text = rank_table(("a1", "a2", "b1"), {"a1": "/g1", "a2": "/g1", "b1": "/g2"}, ranks_per_server=2)
    assert text.splitlines() == [
        "rank,node_rank,server,group,rail,uplink_flows",
        "0,0,a1,/g1,0,1",
        "1,0,a1,/g1,1,1",
        "2,1,a2,/g1,0,1",
        "3,1,a2,/g1,1,1",
        "4,2,b1,/g2,0,1",
        "5,2,b1,/g2,1,1",
    ]


def test_a_scattered_order_carries_more():
    text = rank_table(("a1", "b1", "a2", "b2"), {"a1": "a", "a2": "a", "b1": "b", "b2": "b"}, ranks_per_server=1)
    assert [line.rpartition(",")[2] for line in text.splitlines()[1:]] == ["2"] * 4
