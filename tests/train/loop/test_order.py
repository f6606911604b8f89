"""Order of samples: a function of seed and cursor, dealt to any number of ranks without loss."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.errors import ConfigError
from gangline.train.loop.order import SampleOrder, micro_batches, next_positions, share

spans = st.tuples(st.integers(0, 60), st.integers(1, 10)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(
    global_batch=st.integers(1, 40), ranks=st.integers(1, 8), micro_batch=st.integers(1, 8)
)  # fmt: skip
def test_ranks_take_every_place_of_a_step_once_in_as_many_micro_batches(global_batch, ranks, micro_batch):
    if global_batch < ranks:
        with pytest.raises(ConfigError, match="give each at least one"):
            micro_batches(global_batch, ranks=ranks, rank=0, micro_batch=micro_batch)
        return
    every = [micro_batches(global_batch, ranks=ranks, rank=rank, micro_batch=micro_batch) for rank in range(ranks)]
    places = [place for own in every for start, stop in own for place in range(start, stop)]
    assert places == list(range(global_batch))
    assert len({len(own) for own in every}) == 1
    assert all(stop > start for own in every for start, stop in own)


@given(size=st.integers(1, 50), seed=st.integers(0, 2**31), epoch=st.integers(0, 3))
def test_every_epoch_is_a_permutation_of_its_own_whatever_was_asked_before(size, seed, epoch):
    order = SampleOrder(num_samples=size, seed=seed)
    order.sample(7 * size)
    found = [order.sample(epoch * size + place) for place in range(size)]
    assert sorted(found) == list(range(size))
    assert found == [SampleOrder(num_samples=size, seed=seed).sample(epoch * size + place) for place in range(size)]


def test_epochs_differ():
    order = SampleOrder(num_samples=100, seed=1)
    assert [order.sample(i) for i in range(100)] != [order.sample(100 + i) for i in range(100)]


@given(batches=st.lists(st.integers(1, 9), min_size=1, max_size=9), holes=st.lists(spans, max_size=4))
def test_changing_batch_sizes_lose_and_repeat_no_position(batches, holes):
    cursor, seen = 0, []
    for size in batches:
        positions, cursor = next_positions(cursor, size, holes)
        seen += positions
    wanted = [place for place in range(200) if not any(start <= place < stop for start, stop in holes)]
    assert seen == wanted[: sum(batches)]


@given(count=st.integers(0, 100), parts=st.integers(1, 12))
def test_shares_differ_by_one_at_most(count, parts):
    sizes = [stop - start for start, stop in (share(count, parts, part) for part in range(parts))]
    assert sum(sizes) == count
    assert max(sizes) - min(sizes) <= 1


def test_empty_train_split_is_refused():
    with pytest.raises(ConfigError, match="has no samples"):
        SampleOrder(num_samples=0, seed=1)
