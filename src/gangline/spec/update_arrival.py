"""Updates that travel during a forward pass: when they arrive, and how long the pass waits for them. Pure."""

from collections.abc import Sequence
from itertools import accumulate


def exposed_seconds(seconds: Sequence[float], before: Sequence[float], forward_seconds: float) -> float:
    """All waits of one forward pass for buckets that travel one after the other, from its start.

    A pass that waited for a bucket is later by that at all others: its waits add up to the largest time by which a
    bucket comes after what is computed before its first use.

    Args:
        seconds: That each bucket travels, in the order of first use.
        before: Share of the pass that is computed before the first use of each.
        forward_seconds: Of a pass that waits for nothing, as far as it hides what travels.
    """
    late = (arrival - share * forward_seconds for arrival, share in zip(accumulate(seconds), before, strict=True))
    return max(0.0, *late) if seconds else 0.0
