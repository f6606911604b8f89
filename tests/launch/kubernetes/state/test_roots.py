"""Servers of a gang in the annotations of its root."""

from hypothesis import given
from hypothesis import strategies as st

from gangline.launch.kubernetes.state.roots import placed_annotations, read_placed
from gangline.spec.gang.podset import PlacedServer

names = st.from_regex(r"[a-z0-9]([-a-z0-9._]{0,5}[a-z0-9])?", fullmatch=True)
servers = st.lists(st.builds(PlacedServer, name=names, group=names, block=st.just("") | names), max_size=8)


def noted(placed):
    return {name: text for name, text in placed_annotations(placed).items() if text is not None}


@given(servers)
def test_servers_and_groups_come_back_as_they_were_noted(placed):
    assert read_placed(noted(placed)) == tuple(placed)


def test_groups_that_do_not_match_the_servers_are_not_known():
    assert read_placed({"gangline/servers": "a,b", "gangline/groups": "/g*3"}) == (
        PlacedServer(name="a"), PlacedServer(name="b"),
    )  # fmt: skip
    assert read_placed({"gangline/servers": "a", "gangline/groups": "/g*99999999"}) == (PlacedServer(name="a"),)


def test_placement_of_2048_servers_in_32_groups_takes_a_sixth_of_the_annotations_of_an_object():
    placed = [PlacedServer(name=f"node-{i:04}.rack-17", group=f"leaf-{i // 64:03}", block="pod-a") for i in range(2048)]
    assert sum(len(name) + len(text) for name, text in noted(placed).items()) < 256 * 1024 / 6
