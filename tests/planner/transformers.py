"""Transformers by their shape alone, and GPUs by what they deliver: cases that no test has the machines for."""

from gangline.spec.config.site import GpuTable, Site
from gangline.spec.profile import Matrices, ModelProfile, Trace, Unit

H100 = Site(
    gpu={
        "h100": GpuTable(
            memory_bytes=80e9, flops_per_second={"bf16": 400e12}, memory_bytes_per_second=2.5e12,
            link_bytes_per_second=300e9, network_bytes_per_second=40e9, price_per_hour=2.0,
        )
    }
)  # fmt: skip
"""Delivered, not the peaks."""


def transformer(
    *, layers: int, width: int, feed: int, words: int, sequence: int, heads: int = 32, groups: int = 8,
    experts: int = 1, active: int = 1,
) -> ModelProfile:  # fmt: skip
    """A decoder with gated feed-forward of `feed`, of which a token takes `active` of `experts`; bf16 passes.

    Source:
        Activations as in Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022),
        with gated feed-forward and shared key-value heads; logits in 16 bits, and three copies in 32.
    """
    side = width // heads * groups
    attention, expert = 2 * width * width + 2 * width * side, 3 * width * feed
    block = attention + experts * expert + 2 * width
    flops = 6 * sequence * (attention + active * expert) + 12 * sequence * sequence * width // 2
    saved = sequence * (12 * width + 4 * side + 8 * active * feed)
    units = (
        Unit(
            name="", parameters=2 * words * width, flops=6 * sequence * words * width,
            saved_bytes=14 * sequence * words, boundary_bytes=0,
        ),
        Unit(
            name="layers.0", count=layers, parameters=block, flops=flops, saved_bytes=saved,
            boundary_bytes=2 * sequence * width, expert_parameters=experts * expert if experts > 1 else 0,
            expert_entries=sequence * width * active if experts > 1 else 0,
        ),
    )  # fmt: skip
    trace = Trace(
        precision="bf16", flops_per_sample=sum(each.count * each.flops for each in units),
        moved_bytes_per_sample=2.5 * layers * saved, moves=40 * layers,
        activation_bytes_per_sample=int(sum(each.count * each.saved_bytes for each in units)), units=units, samples=1,
        matrices=(Matrices(rows=sequence, inner=width, columns=feed, count=3 * layers),),
    )  # fmt: skip
    return ModelProfile(
        parameters=sum(each.count * each.parameters for each in units), tensors=9 * layers + 3,
        largest_block_parameters=block, blocks=layers, tensor_cuts=groups, experts=experts if experts > 1 else None,
        sequence=sequence, traces=(trace,), origin="formula",
    )  # fmt: skip


ONE = {"layers": 16, "width": 2048, "feed": 8192, "words": 128_256, "heads": 32}
"""1.5e9 parameters, as of Llama 3.2 1B with an untied head."""
EIGHT = {"layers": 32, "width": 4096, "feed": 14_336, "words": 128_256, "heads": 32}
"""8.0e9, as of Llama 3 8B."""
MIXTURE = {"layers": 32, "width": 1024, "feed": 3584, "words": 32_000, "heads": 16, "experts": 8, "active": 2}
"""2.9e9, of which a token takes a third."""
