"""DDP's gradients to the owners of their matrices: the same weights, half the bytes of an average on all ranks."""

import pytest
import torch
from tests.optim.executors.layouts import reduced_by_ddp
from tests.train.parallel.compress.ranks import on_ranks

MATRICES, BIAS = 2 * 12 * 20, 20
STEPS, FLOAT = 3, 4


@pytest.mark.parametrize("bias", [True, False], ids=["with_a_bias", "of_matrices_alone"])
def test_owners_get_the_gradients_that_all_ranks_would_have_got(bias):
    plain, reduced = (on_ranks(2, reduced_by_ddp, shares, STEPS, bias) for shares in (False, True))
    for each in reduced:
        assert all(map(torch.equal, each["weights"], plain[0]["weights"]))


def test_gradients_of_matrices_take_half_the_bytes_of_an_average():
    (first, second), (plain, _) = on_ranks(2, reduced_by_ddp, True), on_ranks(2, reduced_by_ddp, False)
    updates = plain["sent"]  # the same in both: DDP's own average is not counted
    average = 2 * FLOAT * MATRICES / 2 * STEPS
    bias = 2 * FLOAT * BIAS / 2 * STEPS
    for each in (first, second):
        assert each["sent"] - updates - bias == average / 2
    assert first["held"] + second["held"] == MATRICES == plain["held"]
