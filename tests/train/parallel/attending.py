"""What ranks of a cut sequence do in tests: attend over their parts, and put together what one process should get."""

import torch
import torch.distributed as dist
from torch.nn.functional import scaled_dot_product_attention

from gangline.train.account.clock import WaitMeter
from gangline.train.parallel.context_parallel import SequenceCut, UlyssesAttention
from gangline.train.parallel.ring_attention import RingAttention

ORDERS = {"ring": "paired", "ulysses": "in_turn"}


def tensors(heads=4, key_heads=4, length=32, width=8, value_width=None, dtype=torch.float32):
    """Query, key, value and a gradient of their attention, alike on all ranks."""
    generator = torch.Generator().manual_seed(3)
    shapes = [(heads, width), (key_heads, width), (key_heads, value_width or width), (heads, value_width or width)]
    return [torch.randn(2, n, length, w, generator=generator).to(dtype) for n, w in shapes]


def one_process(query, key, value, grad, *, causal, scale=None):
    """Output and gradients."""
    leaves = [each.clone().requires_grad_() for each in (query, key, value)]
    gqa = query.shape[1] != key.shape[1]
    out = scaled_dot_product_attention(*leaves, is_causal=causal, scale=scale, enable_gqa=gqa)
    out.backward(grad)
    return [out.detach(), *(each.grad for each in leaves)]


def largest_difference(rank, group, exchange, causal, options):
    """Of output and of gradients on this rank's part, between ranks that exchange and one process."""
    given = tensors(**options)
    wanted = one_process(*given, causal=causal)
    places = places_of(rank, group.size(), exchange, given[0].shape[2])
    query, key, value, grad = (each[:, :, places].contiguous() for each in given)
    leaves = [each.requires_grad_() for each in (query, key, value)]
    out = exchange_of(exchange, group).attend(*leaves, is_causal=causal, scale=None, dropout_p=0.0)
    out.backward(grad)
    found = [out.detach(), *(each.grad for each in leaves)]
    return [(a - b[:, :, places]).abs().max().item() for a, b in zip(found, wanted, strict=True)]


def exchange_of(name, group):
    return RingAttention(group, WaitMeter()) if name == "ring" else UlyssesAttention(group)


def places_of(rank, size, exchange, length):
    cut = SequenceCut({"x": 1}, rank, size, ORDERS[exchange])
    return cut.positions(length)


def saved_bytes(rank, group, exchange, length):
    """Bytes that the attention of a rank keeps for its backward pass."""
    found = []
    places = places_of(rank, group.size(), exchange, length)
    query, key, value, _ = (each[:, :, places].contiguous().requires_grad_() for each in tensors(length=length))
    with torch.autograd.graph.saved_tensors_hooks(lambda each: found.append(each) or each, lambda each: each):
        exchange_of(exchange, group).attend(query, key, value, is_causal=True, scale=None, dropout_p=0.0)
    storages = {each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in found}
    return sum(storages.values())


def message_of(rank, group, exchange, options):
    """What an attention that cannot be is refused with."""
    from gangline.errors import ConfigError

    query, key, value, _ = tensors(**{name: options[name] for name in options if name != "dropout_p"})
    try:
        exchange_of(exchange, group).attend(
            query, key, value, is_causal=True, scale=None, dropout_p=options.get("dropout_p", 0.0)
        )
    except ConfigError as error:
        return str(error)
    finally:
        dist.barrier(group)
    return ""
