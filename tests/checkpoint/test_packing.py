"""Tensors in blocks: the same bytes as joined, in memory that is used again no sooner than promised."""

import pytest
import torch

from gangline.checkpoint.format.manifest import BLOCK_BYTES
from gangline.checkpoint.host_tensors import in_blocks

SIZES = [
    [], [0], [1], [BLOCK_BYTES], [3, 2 * BLOCK_BYTES], [BLOCK_BYTES - 1, 1, 0, 2 * BLOCK_BYTES + 7],
    [2 * BLOCK_BYTES, 5, BLOCK_BYTES - 5], [BLOCK_BYTES // 2 + 1] * 5,
]  # fmt: skip


@pytest.mark.parametrize("sizes", SIZES)
def test_blocks_are_the_pieces_joined_and_live_until_the_one_after_the_next(sizes):
    generator = torch.Generator().manual_seed(3)
    pieces = [torch.randint(256, (size,), dtype=torch.uint8, generator=generator) for size in sizes]
    found, before = [], (b"", b"")
    for block in in_blocks(pieces):
        assert before[0] == before[1], "the block before was overwritten"
        found.append(bytes(block))
        before = (block, found[-1])
    assert b"".join(found) == b"".join(piece.numpy().tobytes() for piece in pieces)
    assert all(len(block) == BLOCK_BYTES for block in found[:-1])
