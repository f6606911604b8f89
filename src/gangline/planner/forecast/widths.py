"""Bytes of the numbers that ranks hold and send, and shares of the work of both passes, each once. Pure."""

from collections.abc import Mapping

from gangline.spec.plan import Precision

WEIGHT_BYTES = 4
"""Bytes of a master weight on a rank and in a checkpoint; the optimizer's moments come on top."""
GRADIENT_BYTES = 4
"""Bytes of a gradient: held and reduced in float32, whatever the passes compute in."""
FORWARD, BACKWARD = 1 / 3, 2 / 3
"""Shares of the work of both passes."""
PASS_BYTES: Mapping[Precision, int] = {"fp32": 4, "bf16": 2, "fp16": 2}
"""Bytes of a number in the passes, by their precision."""
