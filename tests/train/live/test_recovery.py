"""Which state a gang of replicas goes on from: the newest that is there in all of its pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.spec.mesh import Mesh
from gangline.train.live.replica import NO_STEP, newest_whole, piece_of

WHOLE, LEFT, RIGHT = (), (0,), (1,)


@pytest.mark.parametrize(
    ("steps", "pieces", "found"),
    [
        ([4, NO_STEP], [WHOLE] * 2, (4, {WHOLE: 0})),
        ([4, 5, NO_STEP], [WHOLE] * 3, (5, {WHOLE: 1})),
        ([5, NO_STEP, 5, 5], [LEFT, RIGHT] * 2, (5, {LEFT: 0, RIGHT: 3})),
        ([5, NO_STEP, 4, 4], [LEFT, RIGHT] * 2, (4, {LEFT: 2, RIGHT: 3})),
        ([NO_STEP, 5, NO_STEP, 5], [LEFT, RIGHT] * 2, (NO_STEP, {})),
        ([5, NO_STEP, 5, 4], [LEFT, RIGHT] * 2, (NO_STEP, {})),
    ],
)
def test_newest_step_that_is_whole_wins(steps, pieces, found):
    newest, sources = newest_whole(steps, pieces)
    assert (newest, sources if newest != NO_STEP else {}) == found


@given(steps=st.lists(st.integers(NO_STEP, 3), min_size=6, max_size=6), shards=st.sampled_from([1, 2, 3]))
def test_as_looking_at_every_step_finds_it(steps, shards):
    mesh = Mesh(dp_replicate=6 // shards, dp_shard=shards)
    pieces = [piece_of(mesh, rank) for rank in range(6)]
    whole = [
        step for step in range(4)
        if all(any(steps[rank] == step for rank in range(6) if rank % shards == shard) for shard in range(shards))
    ]  # fmt: skip
    newest, sources = newest_whole(steps, pieces)
    assert newest == max(whole, default=NO_STEP)
    if whole:
        assert {steps[rank] for rank in sources.values()} == {newest}
        assert sources.keys() == set(pieces)
