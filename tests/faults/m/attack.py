"""A process that is told of a million names that nobody declared or bounded; prints what it cost as JSON."""

import json
import sys

from tests.faults.instruments.memory import peak_bytes
from tests.report.records import passed

from gangline.metrics.exposition import render_text
from gangline.serve.context.telemetry import Telemetry


def main(count: int) -> None:
    telemetry = Telemetry(projects=["bytegpt"], forges=["hub"])
    telemetry.run_ended(passed())
    render_text(telemetry.book)
    before = peak_bytes()
    book = telemetry.book
    for number in range(count // 5):
        book.set("eval_value", number, run="greedy", metric=f"metric-{number}")
        book.set("eval_value", number, run=f"run-{number}", metric="loss")
        book.add(f"invented_{number}_total")
        book.set("train_loss", number, run="r", **{f"label_{number}": "x"})
        telemetry.webhook(f"forge-{number}", "push", "forged", 0.001)
    grown = peak_bytes() - before
    _, text = telemetry.render()
    lines = [line for line in text.decode().splitlines() if not line.startswith("#")]
    print(json.dumps({
        "grown_bytes": grown,
        "greedy": sum('run="greedy"' in line for line in lines),
        "all": len(lines),
        "dropped": {line.split('"')[1]: float(line.split()[-1]) for line in lines if "series_dropped" in line},
        "honest": sum('run="bytegpt-9f31c2a0-k7q2mx"' in line for line in lines),
    }))  # fmt: skip


if __name__ == "__main__":
    main(int(sys.argv[1]))
