"""The reference case of the planner: 8 B parameters on two servers of eight GPUs, every axis of it written down."""

from gangline.planner.cost.exchange import LinkRates
from gangline.planner.formula.inputs import Hardware, Question
from gangline.planner.layouts.enumerate import SearchSpace
from gangline.spec.strategies import DDP, FSDP, ZERO1, ZERO2
from gangline.spec.transformer import Transformer

EIGHT = Transformer(
    layers=32, width=4096, heads=32, key_value_heads=8, head_width=128, feed_width=14_336, vocabulary=128_256,
    sequence=4096,
)  # fmt: skip
LINKS = LinkRates(node=8, inside=200e9, across=40e9)
A100 = Hardware(flops_per_second=140e12, memory_bytes_per_second=2.0e12, links=LINKS)
SPACE = SearchSpace(
    world_size=16, ranks_per_node=8, global_batch=256, tp=(1, 2, 4, 8), pp=(1, 2, 4), micro_batches=(1, 2, 4, 8),
    loss_chunks=(1, 8), schedules=("1f1b",),
)  # fmt: skip
USABLE = (80e9 - 4e9) / 1.10
R1 = Question(model=EIGHT, space=SPACE, hardware=A100, usable_bytes=USABLE)
KINDS = {"replicate": DDP, "zero1": ZERO1, "zero2": ZERO2, "zero3": FSDP}
"""Words of the formulas."""
