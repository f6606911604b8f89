"""Bytes of the numbers that ranks hold and send, and shares of the work of both passes, each once. Pure."""

from gangline.spec.plan import Precision

WEIGHT_BYTES = 4
"""Bytes of a master weight on a rank and in a checkpoint; the optimizer's moments come on top."""
GRADIENT_BYTES = 4
"""Bytes of a gradient: held and reduced in float32, whatever the passes compute in."""
FORWARD, BACKWARD = 1 / 3, 2 / 3
"""Shares of the work of both passes."""


def pass_bytes(precision: Precision) -> int:
    """Bytes of a number in the passes; fp16 and bf16 are cast from float32."""
    return 4 if precision == "fp32" else 2
