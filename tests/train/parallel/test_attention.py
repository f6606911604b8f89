"""Attention over a sequence that is cut over ranks, against torch's own in one process."""

import pytest
import torch
from tests.checkpoint.forked import run_gang
from tests.train.gpu import DEVICE, needs_device
from tests.train.parallel.attending import largest_difference, message_of, saved_bytes, tensors
from tests.train.parallel.long import TASKS
from torch.nn.functional import scaled_dot_product_attention

from gangline.train import attention
from gangline.train.parallel.context_parallel import cut_block
from gangline.train.parallel.ring_attention import (
    AttentionInputs,
    AttentionOptions,
    attend,
    attend_backward,
    block_visibility,
)


@pytest.mark.proves("cp: ring attention", oracle="one process", gate="2e-6, gradients 5e-6")
@pytest.mark.parametrize(
    ("size", "causal", "options"),
    [
        (4, True, {}), (4, False, {}), (2, True, {}), (3, True, {"length": 18}),
        (2, True, {"key_heads": 2}), (2, True, {"value_width": 6}), (2, False, {"value_width": 6, "key_heads": 1}),
    ],
)  # fmt: skip
def test_ring_attends_and_goes_back_like_one_process(size, causal, options, reached):
    for output, *gradients in run_gang(size, largest_difference, "ring", causal, options):
        assert output <= 2e-6
        assert max(gradients) <= 5e-6
        reached(max(output, *gradients))


@pytest.mark.proves("cp: ulysses", oracle="one process")
@pytest.mark.parametrize(("causal", "options"), [(True, {}), (False, {}), (True, {"key_heads": 2})])
def test_ulysses_has_the_bits_of_one_process(causal, options):
    assert run_gang(2, largest_difference, "ulysses", causal, options) == [[0.0] * 4] * 2


def test_half_precision_adds_its_blocks_up_in_float32():
    """Eight bits of mantissa: an error of a rounding or two, not of eight blocks'."""
    for differences in run_gang(4, largest_difference, "ring", True, {"dtype": torch.bfloat16, "length": 64}):
        assert max(differences) <= 2**-5


@pytest.mark.parametrize("exchange", ["ring", "ulysses"])
def test_a_rank_keeps_its_share_of_what_one_process_keeps(exchange):
    kept = {size: run_gang(size, saved_bytes, exchange, 64)[0] for size in (2, 4)}
    assert kept[2] == pytest.approx(2 * kept[4], rel=0.02)
    whole = 4 * tensors(length=64)[0].nbytes
    assert kept[4] == pytest.approx(whole / 4, rel=0.1)  # query, key, value, output, and log-sum-exps


@pytest.mark.parametrize(
    ("exchange", "options", "words"),
    [
        ("ulysses", {"heads": 3, "key_heads": 3}, "found 3 heads"),
        ("ulysses", {"heads": 4, "key_heads": 1}, "found 4 heads and 1 of keys and values"),
        ("ring", {"dropout_p": 0.1}, "dropout_p=0.1"),
        ("ring", {"length": 17}, "found 17 positions"),
    ],
)  # fmt: skip
def test_what_an_exchange_does_not_carry_out_is_refused(exchange, options, words):
    for message in run_gang(2, message_of, exchange, options):
        assert words in message
        assert "work" in message


def test_every_rank_of_a_causal_ring_computes_as_much_in_every_turn():
    half = 4
    for size in (2, 3, 4, 7):
        work = [
            [_pairs(block_visibility(rank, (rank - turn) % size, half, causal=True), half) for turn in range(1, size)]
            for rank in range(size)
        ]
        assert {pairs for turns in work for pairs in turns} == {2 * half * half}


def _pairs(block, half):
    places = range(2 * half)
    return len(places[block.queries]) * len(places[block.keys])


def test_plain_products_and_the_flash_operator_agree():
    query, key, value, grad = tensors(length=16, key_heads=2)
    wider = [torch.cat([each, torch.zeros_like(each[..., :1])], -1) for each in (value, grad)]
    for causal in (True, False):
        how = AttentionOptions(causal, scale=0.3)
        given, plainly = (
            AttentionInputs(query, key, value),
            AttentionInputs(query, key, wider[0]),
        )  # a width the operator does not take
        flash, plain = attend(given, how), attend(plainly, how)
        torch.testing.assert_close(plain.out[..., :-1], flash.out)
        torch.testing.assert_close(plain.log_sum, flash.log_sum)
        ours, theirs = attend_backward(wider[1], plainly, plain, how), attend_backward(grad, given, flash, how)
        torch.testing.assert_close(ours.query, theirs.query)
        torch.testing.assert_close(ours.key, theirs.key)
        torch.testing.assert_close(ours.value[..., :-1], theirs.value)


class Alone:
    """An exchange of one rank, which counts."""

    def __init__(self):
        self.num_calls = 0

    def attend(self, query, key, value, *, is_causal, scale, dropout_p):
        self.num_calls += 1
        return scaled_dot_product_attention(query, key, value, is_causal=is_causal, scale=scale, dropout_p=dropout_p)

    def sum(self, part):
        return part


@pytest.fixture
def alone():
    exchange = Alone()
    attention.use(exchange)
    yield exchange
    attention.use(None)


def test_torchs_own_attention_is_caught_inside_a_block_and_nowhere_else(alone):
    block, x = TASKS.Block(16, 4), torch.randn(2, 8, 16)
    before = block(x)
    cut_block(block)
    assert torch.equal(block(x), before)
    assert alone.num_calls == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # dynamo's own, at a break
def test_compiled_block_still_attends_over_ranks(alone):
    block, x = TASKS.Block(16, 4), torch.randn(2, 8, 16)
    before = block(x)
    cut_block(block)
    block.compile(backend="aot_eager")
    torch.testing.assert_close(block(x), before)
    block(x).sum().backward()
    assert alone.num_calls == 2
    assert block.mix.weight.grad is not None


@pytest.mark.gpu
@needs_device
@pytest.mark.parametrize("causal", [True, False])
def test_flash_attention_of_a_gpu_agrees_with_plain_products(causal):
    """In bf16: eight bits of mantissa."""
    query, key, value, grad = (each.to(DEVICE) for each in tensors(length=64, width=32, dtype=torch.bfloat16))
    exact, how = AttentionInputs(query.float(), key.float(), value.float()), AttentionOptions(causal, scale=0.2)
    wanted, found = attend(exact, how), attend(AttentionInputs(query, key, value), how)
    torch.testing.assert_close(found.out.float(), wanted.out, atol=2e-2, rtol=2e-2)
    torch.testing.assert_close(found.log_sum, wanted.log_sum, atol=2e-2, rtol=2e-2)
    theirs = attend_backward(grad.float(), exact, wanted, how)
    ours = attend_backward(grad, AttentionInputs(query, key, value), found, how)
    for name in ("query", "key", "value"):
        torch.testing.assert_close(getattr(ours, name).float(), getattr(theirs, name), atol=5e-2, rtol=5e-2)
