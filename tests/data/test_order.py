"""Order of data sets: every sample once an epoch, near shards together, the same whoever computes it."""

import itertools
import random
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.data.order import BLOCK, DatasetOrder, Permutation, SetRows
from gangline.errors import ConfigError

SOURCE = Path(__file__).parents[2] / "src"


def places_of(order, positions):
    """(set, shard, row) of each position."""
    found = order.places([*positions])
    return list(zip(found.sets.tolist(), found.shards.tolist(), found.rows.tolist(), strict=True))


sizes = st.lists(st.integers(1, 9), min_size=1, max_size=9).map(tuple)
orders = st.sampled_from(["window", "full", "file"])


@pytest.mark.row("DL1")
@pytest.mark.parametrize(
    "counts", [range(1, 257), range(257, 4097, 61), pytest.param(range(257, 4097), marks=pytest.mark.slow)]
)
def test_permutation_is_a_bijection(counts):
    for count in counts:
        assert sorted(Permutation(count, "key")(np.arange(count))) == list(range(count))


@pytest.mark.row("DL1")
def test_permutation_of_many_stays_inside_and_maps_no_two_to_one():
    dice = random.Random(61)
    for number in range(1000):
        count = dice.randint(1, 10 ** dice.randint(4, 12))
        some = {dice.randrange(count) for _ in range(8)}
        found = set(Permutation(count, f"{number}")(np.array([*some])).tolist())
        assert len(found) == len(some)
        assert all(0 <= each < count for each in found)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_all_permutations_of_few_are_about_as_frequent(count):
    drawn = 2000
    seen = Counter(tuple(Permutation(count, f"{key}")(np.arange(count)).tolist()) for key in range(drawn))
    every = len(list(itertools.permutations(range(count))))
    assert len(seen) == every
    assert max(seen.values()) < 1.5 * drawn / every


@settings(max_examples=30, deadline=None)
@given(rows=sizes, order=orders, window=st.integers(1, 4), seed=st.integers(0, 9), epoch=st.integers(0, 3))
def test_every_epoch_has_each_row_once(rows, order, window, seed, epoch):
    found = DatasetOrder([SetRows(name="a", rows=rows)], seed=seed, order=order, window=window)
    size = sum(rows)
    positions = range(epoch * size, epoch * size + size)
    places = places_of(found, positions)
    assert sorted(places) == [(0, shard, row) for shard, count in enumerate(rows) for row in range(count)]
    assert found.samples(positions) == [sum(rows[:shard]) + row for _, shard, row in places]


@settings(max_examples=30, deadline=None)
@given(rows=sizes, window=st.integers(1, 4), seed=st.integers(0, 9))
def test_a_window_reads_its_shards_before_any_other(rows, window, seed):
    found = DatasetOrder([SetRows(name="a", rows=rows)], seed=seed, window=window)
    shards = [shard for _, shard, _ in places_of(found, range(sum(rows)))]
    seen = list(dict.fromkeys(shards))
    groups = [set(seen[first : first + window]) for first in range(0, len(seen), window)]
    for group in groups:
        own = [place for place, shard in enumerate(shards) if shard in group]
        assert max(own) - min(own) + 1 == sum(rows[each] for each in group)


@settings(max_examples=30, deadline=None)
@given(
    shards=st.integers(1, 8), rows=st.integers(1, 6), parts=st.integers(1, 4), share=st.integers(1, 3),
    order=orders, window=st.integers(1, 3), seed=st.integers(0, 9),
)  # fmt: skip
def test_parts_read_shards_of_their_own_and_each_counts_its_epochs(shards, rows, parts, share, order, window, seed):
    sets, batch = [SetRows(name="a", rows=(rows,) * shards * parts)], parts * share
    found = DatasetOrder(sets, seed=seed, order=order, window=window, parts=parts, global_batch=batch)
    steps = range(3 * shards * rows // share + 1)
    starts = [[step * batch + part * share for step in steps] for part in range(parts)]
    own = [
        [place[1:] for place in places_of(found, (start + each for start in own for each in range(share)))]
        for own in starts
    ]
    read = [{shard for shard, _ in each} for each in own]
    assert sorted(itertools.chain(*read)) == list(range(shards * parts)), "each shard belongs to one part"
    for places in own:
        for first in range(0, len(places) - shards * rows + 1, shards * rows):
            assert len(set(places[first : first + shards * rows])) == shards * rows


@settings(max_examples=10, deadline=None)
@given(
    weights=st.lists(st.integers(1, 20), min_size=2, max_size=4), first=st.integers(0, 10**12), seed=st.integers(0, 9)
)
def test_a_mix_has_its_shares_in_every_block_and_leaves_out_no_row(weights, first, seed):
    sets = [SetRows(name=f"s{number}", rows=(40, 30), weight=weight) for number, weight in enumerate(weights)]
    found = DatasetOrder(sets, seed=seed)
    start = first // BLOCK * BLOCK
    owners = Counter(number for number, _, _ in places_of(found, range(start, start + BLOCK)))
    for number, weight in enumerate(weights):
        assert abs(owners[number] - BLOCK * weight / sum(weights)) < 1
    rows = Counter(place[1:] for place in places_of(found, range(3 * BLOCK)) if place[0] == 0)
    assert max(rows.values()) - min(rows.values()) <= 1 or len(rows) < 70


def test_what_is_left_of_a_block_goes_to_the_largest_remainders():
    found = DatasetOrder([SetRows(name=f"{each}", rows=(9,), weight=each) for each in (5.0, 1.0, 1.0)], seed=1)
    assert Counter(number for number, _, _ in places_of(found, range(BLOCK))) == {0: 714, 1: 143, 2: 143}


@settings(max_examples=30, deadline=None)
@given(rows=sizes, order=orders, window=st.integers(1, 3), batch=st.integers(1, 9), step=st.integers(0, 40))
def test_windows_name_all_that_a_step_reads_before_it_does(rows, order, window, batch, step):
    sets = [SetRows(name="a", rows=rows, weight=2), SetRows(name="b", rows=(3, 2, 4))]
    found = DatasetOrder(sets, seed=1, order=order, window=window, global_batch=batch)
    now, _ = found.windows(step * batch, range(batch))
    reads = {place[:2] for place in places_of(found, range(step * batch, step * batch + batch))}
    assert reads <= set(now)


def test_seeds_epochs_and_sets_differ():
    def take(seed=1, name="a", first=0):
        order = DatasetOrder([SetRows(name=name, rows=(50, 50))], seed=seed)
        return order.samples(range(first, first + 100))

    assert len({tuple(each) for each in (take(), take(seed=2), take(name="b"), take(first=100))}) == 4


PROGRAM = """
from hashlib import sha256
from gangline.data.order import DatasetOrder, SetRows
sets = [SetRows(name="a", rows=(100,) * 50, weight=0.7), SetRows(name="b", rows=(33,) * 20, weight=0.3)]
found = []
for order in ("window", "full", "file"):
    found += DatasetOrder(sets, seed=1, order=order, parts=4, global_batch=16).samples([*range(2000), 10**9 + 7])
print(sha256(str(found).encode()).hexdigest())
"""
GOLDEN = "2d3766f3a5b441854ea6e5352ddbf17dc65be880adca92694b2a5f15a3ad8088"


@pytest.mark.row("DL1")
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_every_python_has_the_same_order(version):
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    python = sys.executable if version == own else shutil.which(f"python{version}")
    if python is None:
        pytest.skip(f"no python{version} on the path")
    if subprocess.run([python, "-c", "import numpy"], capture_output=True, check=False).returncode:
        pytest.skip(f"python{version} has no numpy")
    environ = {"PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([python, "-c", PROGRAM], env=environ, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == GOLDEN, done.stderr


def test_no_position_costs_a_list_of_samples():
    order = DatasetOrder([SetRows(name="a", rows=(10**9,) * 10)], seed=1, order="full")
    assert 0 <= order.samples([10**15])[0] < 10**10


@pytest.mark.parametrize(
    ("sets", "options", "reason"),
    [
        ([SetRows(name="a", rows=(5, 5))], {"parts": 3, "global_batch": 4}, "wanted a divisor of train.global_batch"),
        ([SetRows(name="a", rows=(5,))], {"parts": 2, "global_batch": 4}, "found 1 to train on in a; use"),
        ([SetRows(name="a", rows=(5,)), SetRows(name="b", rows=(5,), weight=1e-5)], {}, "a thousandth of their sum"),
    ],
)  # fmt: skip
def test_an_order_that_cannot_be_is_refused(sets, options, reason):
    with pytest.raises(ConfigError, match=reason):
        DatasetOrder(sets, seed=1, **options)


@pytest.mark.parametrize("count", [1, 2, 3, 64, 1000, 1024, 5000, 2**40 + 7])
def test_a_number_goes_where_it_goes_among_others(count):
    move = Permutation(count, "seed")
    for first in {0, count // 3, max(count - 70, 0)}:
        numbers = np.arange(first, min(first + 70, count))
        assert move(numbers).tolist() == [int(move(numbers[each : each + 1])[0]) for each in range(len(numbers))]


def test_samples_of_a_step_are_those_of_single_positions():
    sets = [SetRows(name="a", rows=(700, 900, 800, 300)), SetRows(name="b", rows=(500, 1200), weight=0.5)]
    found = DatasetOrder(sets, seed=3, window=2).samples(range(9000))
    for position in range(0, 9000, 97):
        assert DatasetOrder(sets, seed=3, window=2).samples([position]) == [found[position]]
