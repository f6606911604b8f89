"""First batch of a resumed training, DL4: anywhere in 10^9 samples against the first batch at 0, in one run.

    python benchmarks/data/order.py

Each measurement makes the order from nothing, as a restart does, and takes the positions of one batch. Ratios are of
the least processor seconds of interleaved rounds: other load on the machine adds to some of them.
"""

import json
import sys
import time

from gangline.data.order import DatasetOrder, SetRows
from gangline.spec.data_source import Order

SHARDS, ROWS, BATCH, ROUNDS = 33_334, 30_000, 256, 3
PLACES = (0, 12_345_678, 999_999_000, 7_000_000_019)
TARGET = 2.0


def first_batch(order: Order, position: int, parts: int) -> float:
    """Processor seconds from nothing to the numbers of one batch."""
    began = time.process_time()
    made = DatasetOrder(
        [SetRows(name="large", rows=(ROWS,) * SHARDS)], seed=1, order=order, parts=parts, global_batch=BATCH
    )
    made.samples(range(position // BATCH * BATCH, position // BATCH * BATCH + BATCH))
    return time.process_time() - began


def main() -> int:
    """Print a row for each order; returns 1 if one is above the target."""
    worst = 0.0
    for order, parts in (("window", 1), ("window", 16), ("full", 1)):
        rounds = [{place: first_batch(order, place, parts) for place in PLACES} for _ in range(ROUNDS)]
        times = {place: min(each[place] for each in rounds) for place in PLACES}
        ratio = max(times.values()) / times[0]
        worst = max(worst, ratio)
        print(json.dumps({
            "order": order, "parts": parts, "samples": SHARDS * ROWS, "first_seconds": round(times[0], 4),
            "ratio": round(ratio, 3),
        }))  # fmt: skip
    print(json.dumps({"row": "DL4", "worst_ratio": round(worst, 3), "target": TARGET}))
    return int(worst > TARGET)


if __name__ == "__main__":
    sys.exit(main())
