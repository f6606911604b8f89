"""Updates that arrive during the next forward pass: the bits of a step that waits, whatever happens between steps."""

import pytest
import torch
from tests.optim.executors.overlapped import (
    BETWEEN,
    BLOCKS,
    BUCKET,
    blocks_that_found_updates_outstanding,
    interrupted_while_updates_arrive,
    refusals,
    trained_both_ways,
    waited_by_hand,
    waited_on_one_rank,
)
from tests.train.parallel.compress.ranks import on_ranks

RULES = ("muon", "shampoo", "soap")


def require_equal(ranks, cases):
    """Each case ended with the same bits with overlap and without, and steps with overlap did leave updates."""
    for found in ranks:
        for case, (overlapped, plain) in zip(cases, found, strict=True):
            assert len(overlapped["seen"]) == len(plain["seen"])
            assert all(map(torch.equal, overlapped["seen"], plain["seen"])), case
            assert (overlapped["arrives"], plain["arrives"]) == (True, False), case


@pytest.mark.parametrize("wrapped", ["ddp", "zero1"])
def test_updates_that_arrive_later_are_those_of_a_step_that_waits(wrapped):
    cases = [{"rule": rule, "wrapped": wrapped} for rule in RULES] + [{"wrapped": wrapped, "bucket": None}]
    require_equal(on_ranks(2, trained_both_ways, cases), cases)


def test_shards_with_copies_wait_for_theirs():
    cases = [{"rule": rule, "wrapped": "hsdp"} for rule in RULES]
    require_equal(on_ranks(4, trained_both_ways, cases), cases)


def test_nothing_that_happens_between_two_steps_sees_older_weights():
    cases = [{"between": each} for each in BETWEEN]
    require_equal(on_ranks(2, trained_both_ways, cases), cases)


@pytest.mark.parametrize("bucket", [BUCKET, None], ids=["given", "chosen"])
def test_a_block_waits_for_its_own_updates_alone(bucket):
    for found in on_ranks(2, blocks_that_found_updates_outstanding, bucket):
        assert found == [True] * (BLOCKS - 1) + [False]


def test_a_rank_that_waits_alone_needs_nothing_more_of_the_others():
    assert on_ranks(2, waited_on_one_rank) == [True, True]


def test_a_step_begun_by_hand_needs_its_gradients_no_more():
    for each in on_ranks(2, waited_by_hand):
        assert all(map(torch.equal, each["found"], each["wanted"]))
        assert each["changed"]


def test_a_step_interrupted_while_updates_arrive_says_so():
    for each in on_ranks(2, interrupted_while_updates_arrive):
        assert not each["whole"]
        assert each["error"].startswith("a step was interrupted while its updates were applied")


def test_what_could_not_wait_is_refused():
    off, twice, foreign, partial, uncalled = on_ranks(2, refusals)[0]
    assert off == twice == 'overlap_forward is called once, and needs PlanOptions(overlap="forward"), found another'
    assert foreign.startswith("units of a forward pass are modules of its Stack, found ['Linear']")
    assert partial.startswith("the forward pass of Linear can wait for its own parameters alone")
    assert uncalled.startswith("overlap_forward: wanted calls of Stack")
