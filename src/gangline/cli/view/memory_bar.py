"""Bar of a rank's memory by cause, one letter each."""

from collections.abc import Sequence

from gangline.spec.forecast import MemoryCause

MARKS = 20
"""Of a whole device."""
LETTERS = {
    "weights": "W", "gradients": "G", "optimizer": "O", "activations": "A", "gathered": "B", "buffers": "B",
    "updates": "U",
}  # fmt: skip
_EMPTY, _MORE = "·", ">"


def memory_bar(causes: Sequence[MemoryCause], capacity_bytes: float) -> str:
    """`WOAAAAAAAAAAAAABB···`: each cause ends at the nearest mark; `>` at the end: there is more than the device has.

    Args:
        causes: In the order of the bar.
        capacity_bytes: Of the device.
    """
    bar, upto = "", 0.0
    for each in sorted(causes, key=lambda cause: list(LETTERS).index(cause.cause)):
        upto += each.size_bytes
        bar += LETTERS[each.cause] * (round(upto / capacity_bytes * MARKS) - len(bar))
    return f"{bar[:MARKS]}{_MORE}" if len(bar) > MARKS else bar.ljust(MARKS, _EMPTY) + " "
