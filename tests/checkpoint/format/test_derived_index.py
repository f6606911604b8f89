"""Boxes of derived tensors, read one by one from any chunks, against slices of the whole."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gangline.checkpoint.format.derived_index import cut, join
from gangline.checkpoint.format.index import Chunk, StoredTensor

COLUMNS = 4


@st.composite
def stored(draw, rows):
    """Values that are all different, and the chunks of some rows and columns that hold them."""
    values = np.arange(rows * COLUMNS).reshape(rows, COLUMNS) + 1000 * draw(st.integers(0, 9))
    row_cuts, column_cuts = (
        [0, *sorted(draw(st.sets(st.integers(1, end - 1), max_size=3))), end] if end > 1 else [0, end]
        for end in (rows, COLUMNS)
    )
    boxes = [
        ((row, column), (next_row - row, next_column - column))
        for row, next_row in pairwise(row_cuts)
        for column, next_column in pairwise(column_cuts)
    ]
    chunks = tuple(Chunk(file="f", offsets=offsets, sizes=sizes) for offsets, sizes in boxes)
    return values, StoredTensor(dtype="F32", shape=values.shape, chunks=chunks)


def read(tensor, values):
    """What the boxes hold, each element written once."""
    found = np.full(tensor.shape, -1)
    for chunk in tensor.chunks:
        row, column = chunk.of.offsets
        flat = values[chunk.name][row : row + chunk.of.sizes[0], column : column + chunk.of.sizes[1]].reshape(-1)
        width = chunk.sizes[1]
        assert width == chunk.of.sizes[1]
        starts = [chunk.first + at * chunk.stride * width for at in range(chunk.sizes[0])]
        place = tuple(slice(start, start + size) for start, size in zip(chunk.offsets, chunk.sizes, strict=True))
        assert (found[place] == -1).all()
        found[place] = [flat[start : start + width] for start in starts]
    return found


@given(data=st.data(), rows=st.integers(1, 12))
def test_rows_that_are_cut_out_are_those_of_the_whole(data, rows):
    values, tensor = data.draw(stored(rows))
    ends = sorted(data.draw(st.sets(st.integers(0, rows), min_size=2, max_size=6)))
    ranges = list(zip(ends[::2], ends[1::2], strict=False))
    runs, own = [], 0
    for start, stop in ranges:
        runs.append((start, own, stop - start))
        own += stop - start
    wanted = np.concatenate([values[start:stop] for start, stop in ranges])
    assert (read(cut("a", tensor, runs, drops_dim=False), {"a": values}) == wanted).all()


@given(data=st.data(), rows=st.integers(2, 12), every=st.integers(1, 4), first=st.integers(0, 3))
def test_so_are_single_rows_at_one_stride(data, rows, every, first):
    values, tensor = data.draw(stored(rows + first))
    wanted = values[first::every]
    found = cut("a", tensor, [(first + at * every, at, 1) for at in range(len(wanted))], drops_dim=False)
    assert (read(found, {"a": values}) == wanted).all()
    assert len(found.chunks) <= max(len(tensor.chunks), len(wanted))


@given(data=st.data(), each=st.integers(1, 6))
def test_rows_that_are_joined_alternate(data, each):
    (left, of_left), (right, of_right) = data.draw(stored(each)), data.draw(stored(each))
    runs = [[(at, 2 * at + other, 1) for at in range(each)] for other in (0, 1)]
    found = join([("a", of_left, runs[0]), ("b", of_right, runs[1])], adds_dim=False)
    wanted = np.stack([left, right], 1).reshape(-1, COLUMNS)
    assert (read(found, {"a": left, "b": right}) == wanted).all()
