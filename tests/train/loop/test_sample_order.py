"""Order of samples: a function of seed and cursor, dealt to any number of ranks without loss."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gangline.errors import ConfigError
from gangline.train.loop.sample_order import SampleOrder, micro_batches, next_positions, share

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


class Ordered:
    """Data whose epochs are as given."""

    def __init__(self, size, *epochs):
        self.size, self.epochs = size, epochs

    def __len__(self):
        return self.size

    def epoch_order(self, epoch):
        return self.epochs[epoch]


def test_data_with_an_order_of_their_own_are_taken_in_it():
    order = SampleOrder.of(Ordered(3, [2, 2, 0], torch.tensor([0, 1, 2])), seed=1)
    assert [order.sample(place) for place in range(6)] == [2, 2, 0, 0, 1, 2]
    assert [order.sample(place) for place in (0, 4)] == [2, 1]


@pytest.mark.parametrize(
    ("epoch", "reason"),
    [
        ([0, 1], "wanted 3 numbers of samples, 0 to 2, found 2 numbers from 0 to 1"),
        ([0, 1, 3], "found 3 numbers from 0 to 3"),
        ([0, -1, 1], "found 3 numbers from -1 to 1"),
        ([], "found 0 numbers"),
        ([0, 1.5, 2], "wanted numbers of samples, 'float'"),
        (None, "wanted numbers of samples, 'NoneType'"),
    ],
)
def test_an_order_that_is_none_of_the_samples_is_refused(epoch, reason):
    with pytest.raises(ConfigError, match=reason):
        SampleOrder.of(Ordered(3, epoch), seed=1).sample(0)
