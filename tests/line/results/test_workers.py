"""What a record says of workers that trained apart."""

from dataclasses import replace

import pytest

from gangline.errors import IntegrityError
from gangline.line.results.workers import summarize_workers
from gangline.train.parameters.layout import BlockPush, BlockSet, Head


def push(block, worker, silent=0.0):
    return BlockPush(
        run="r", block=block, attempt=1, worker=worker, versions=(0,), samples=8, loss=1.0, tokens=0, seconds=2.0,
        silent_seconds=silent, wire_bytes=(1000, 4000), digests=("",),
    )  # fmt: skip


def head(version, **counts):
    return Head(
        run="r", shard=0, version=version, file="", weights_sha256="", state_sha256="",
        done=BlockSet(mark=4), **counts,
    )  # fmt: skip


def test_summary_has_blocks_by_worker_ages_bytes_and_what_was_discarded():
    found = summarize_workers(
        [push(0, 1), push(1, 2, silent=65.0), push(2, 1), push(3, 1)], [head(2, dropped=1, age_sum=6), head(3)]
    )
    assert [(each.worker, each.blocks, each.sent_bytes) for each in found.workers] == [(1, 3, 3000), (2, 1, 1000)]
    assert (found.merges, found.dropped, found.refused) == (3, 1, 0)
    assert (found.age_mean, found.workers[1].silent_seconds) == (6 / 7, 65.0)


@pytest.mark.row("PS3")
@pytest.mark.parametrize(
    "stated", [replace(push(0, 1), wire_bytes=(0, 10**400)), replace(push(0, 1), worker=0), head(1, age_sum=10**400)]
)
def test_figures_that_none_can_have_are_refused(stated):
    """Model code of a worker holds the key of the run's objects; the driver computes with what they say."""
    with pytest.raises(IntegrityError, match="can have, found others"):
        stated.require_figures()
