"""Order of data sets: every sample once an epoch, near shards together, the same whoever computes it."""

import itertools
import random
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.data.order import BLOCK, DatasetOrder, Permutation, SetRows
from gangline.errors import ConfigError

SOURCE = Path(__file__).parents[2] / "src"
sizes = st.lists(st.integers(1, 9), min_size=1, max_size=9).map(tuple)
orders = st.sampled_from(["window", "full", "file"])


@pytest.mark.row("DL1")
@pytest.mark.parametrize(
    "counts", [range(1, 257), range(257, 4097, 61), pytest.param(range(257, 4097), marks=pytest.mark.slow)]
)
def test_permutation_is_a_bijection(counts):
    for count in counts:
        assert sorted(map(Permutation(count, "key"), range(count))) == list(range(count))


@pytest.mark.row("DL1")
def test_permutation_of_many_stays_inside_and_maps_no_two_to_one():
    dice = random.Random(61)
    for number in range(1000):
        count = dice.randint(1, 10 ** dice.randint(4, 12))
        some = {dice.randrange(count) for _ in range(8)}
        found = {Permutation(count, f"{number}")(each) for each in some}
        assert len(found) == len(some)
        assert all(0 <= each < count for each in found)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_all_permutations_of_few_are_about_as_frequent(count):
    drawn = 2000
    seen = Counter(tuple(map(Permutation(count, f"{key}"), range(count))) for key in range(drawn))
    every = len(list(itertools.permutations(range(count))))
    assert len(seen) == every
    assert max(seen.values()) < 1.5 * drawn / every


@settings(max_examples=30, deadline=None)
@given(rows=sizes, order=orders, window=st.integers(1, 4), seed=st.integers(0, 9), epoch=st.integers(0, 3))
def test_every_epoch_has_each_row_once(rows, order, window, seed, epoch):
    found = DatasetOrder([SetRows(name="a", rows=rows)], seed=seed, order=order, window=window)
    size = sum(rows)
    places = [found.place(epoch * size + each) for each in range(size)]
    assert sorted(places) == [(0, shard, row) for shard, count in enumerate(rows) for row in range(count)]
    assert [found.sample(epoch * size + each) for each in range(size)] == [
        sum(rows[:shard]) + row for _, shard, row in places
    ]


@settings(max_examples=30, deadline=None)
@given(rows=sizes, window=st.integers(1, 4), seed=st.integers(0, 9))
def test_a_window_reads_its_shards_before_any_other(rows, window, seed):
    found = DatasetOrder([SetRows(name="a", rows=rows)], seed=seed, window=window)
    shards = [found.place(each)[1] for each in range(sum(rows))]
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
    own = [[found.place(step * batch + part * share + each)[1:] for step in steps for each in range(share)]
           for part in range(parts)]  # fmt: skip
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
    owners = Counter(found.place(start + each)[0] for each in range(BLOCK))
    for number, weight in enumerate(weights):
        assert abs(owners[number] - BLOCK * weight / sum(weights)) < 1
    rows = Counter(place[1:] for each in range(3 * BLOCK) if (place := found.place(each))[0] == 0)
    assert max(rows.values()) - min(rows.values()) <= 1 or len(rows) < 70


@settings(max_examples=30, deadline=None)
@given(rows=sizes, order=orders, window=st.integers(1, 3), batch=st.integers(1, 9), step=st.integers(0, 40))
def test_windows_name_all_that_a_step_reads_before_it_does(rows, order, window, batch, step):
    sets = [SetRows(name="a", rows=rows, weight=2), SetRows(name="b", rows=(3, 2, 4))]
    found = DatasetOrder(sets, seed=1, order=order, window=window, global_batch=batch)
    now, _ = found.windows(step * batch, range(batch))
    reads = {found.place(step * batch + each)[:2] for each in range(batch)}
    assert reads <= set(now)
    ahead = [found.windows(each * batch, range(batch)) for each in range(step, step + 2)]
    assert set(ahead[1][0]) <= {*ahead[0][0], *ahead[0][1]} or batch > sum(rows) // 2 or order != "file"


def test_seeds_epochs_and_sets_differ():
    def take(seed=1, name="a", first=0):
        order = DatasetOrder([SetRows(name=name, rows=(50, 50))], seed=seed)
        return [order.sample(first + each) for each in range(100)]

    assert len({tuple(each) for each in (take(), take(seed=2), take(name="b"), take(first=100))}) == 4


PROGRAM = """
from hashlib import sha256
from gangline.data.order import DatasetOrder, SetRows
sets = [SetRows(name="a", rows=(100,) * 50, weight=0.7), SetRows(name="b", rows=(33,) * 20, weight=0.3)]
found = [DatasetOrder(sets, seed=1, order=order, parts=4, global_batch=16).sample(each)
         for order in ("window", "full", "file") for each in (*range(2000), 10**9 + 7)]
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
    if subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode:
        pytest.skip(f"python{version} is a name without a program")
    environ = {"PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([python, "-c", PROGRAM], env=environ, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == GOLDEN, done.stderr


def test_no_position_costs_a_list_of_samples():
    order = DatasetOrder([SetRows(name="a", rows=(10**9,) * 10)], seed=1, order="full")
    assert 0 <= order.sample(10**15) < 10**10


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
