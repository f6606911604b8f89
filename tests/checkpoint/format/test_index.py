"""The index accepts tilings and nothing else, judged by painting every element."""

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.checkpoint.format.index import Chunk, Index, StoredTensor
from gangline.errors import IntegrityError
from gangline.spec.codec import canonical, from_json

sides = st.integers(0, 4)


@st.composite
def boxes(draw, dims):
    return Chunk(
        file="f", offsets=tuple(draw(sides) for _ in range(dims)), sizes=tuple(draw(sides) for _ in range(dims))
    )


@st.composite
def tensors(draw):
    dims = draw(st.integers(0, 3))
    return tuple(draw(sides) for _ in range(dims)), tuple(draw(st.lists(boxes(dims), max_size=4)))


@st.composite
def grids(draw):
    """A shape cut into a grid of chunks, shuffled."""
    shape, cuts = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)), []
    for side in shape:
        inner = draw(st.sets(st.integers(1, side - 1))) if side > 1 else set()
        edges = [0, *sorted(inner), side]
        cuts.append(list(pairwise(edges)))
    chunks = [
        Chunk(file="f", offsets=tuple(a for a, _ in place), sizes=tuple(b - a for a, b in place))
        for place in product(*cuts)
    ]
    return tuple(shape), tuple(draw(st.permutations(chunks)))


def is_tiling(shape, chunks) -> bool:
    painted = [
        point
        for chunk in chunks
        for point in product(*(range(o, o + s) for o, s in zip(chunk.offsets, chunk.sizes, strict=True)))
    ]
    inside = all(o + s <= side for c in chunks for o, s, side in zip(c.offsets, c.sizes, shape, strict=True))
    return inside and sorted(painted) == sorted(product(*(range(side) for side in shape)))


@given(tensors())
def test_only_tilings_are_accepted(tensor):
    shape, chunks = tensor
    if is_tiling(shape, chunks):
        assert StoredTensor(dtype="F32", shape=shape, chunks=chunks).shape == shape
    else:
        with pytest.raises(IntegrityError):
            StoredTensor(dtype="F32", shape=shape, chunks=chunks)


@given(grids())
def test_every_grid_is_accepted_and_survives_json(grid):
    index = Index(tensors={"model/x": StoredTensor(dtype="BF16", shape=grid[0], chunks=grid[1])})
    assert from_json(Index, canonical(index)) == index


@pytest.mark.parametrize("changes", [{"dtype": "F33"}, {"shape": (-1,)}, {"shape": (2, 1)}])
def test_impossible_tensors_are_refused(changes):
    with pytest.raises(IntegrityError):
        StoredTensor(
            **({"dtype": "F32", "shape": (2,), "chunks": (Chunk(file="f", offsets=(0,), sizes=(2,)),)} | changes)
        )
