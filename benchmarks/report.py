"""Draws the report of a 256-rank, 10,000-step record, against writing that record as JSON with the standard library.

Bounds: 1 s and 1.5 MB. The ratio is what CI watches: it does not depend on the machine.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.report import records

from gangline.report.run.html import render_html
from gangline.report.run.markdown import render_markdown
from gangline.spec.codec import to_plain

ROUNDS = 15


def timed(work: Callable[[], object]) -> float:
    """Median seconds of a call, after one to warm up."""
    work()
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return median(times)


def main() -> int:
    record, base = records.large(ranks=256, steps=10_000), records.passed()
    start = time.perf_counter()
    text = render_html(record, base)
    first = time.perf_counter() - start
    html = timed(lambda: render_html(record, base))
    plain = timed(lambda: json.dumps(to_plain(record), indent=1))
    result = {
        "record_bytes": len(record.to_json()),
        "html_bytes": len(text.encode()),
        "html_first_seconds": round(first, 4),
        "html_seconds": round(html, 4),
        "markdown_seconds": round(timed(lambda: render_markdown(record)), 4),
        "json_dump_seconds": round(plain, 4),
        "html_to_json_dump_ratio": round(html / plain, 2),
    }
    _write(result)
    return 0 if first <= 1.0 and len(text.encode()) <= 1_500_000 else 1


def _write(result: dict[str, float]) -> None:
    print(json.dumps(result, indent=1))
    folder = Path(".gangline/benchmarks")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    sys.exit(main())
