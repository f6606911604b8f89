"""Published JSON schemas of what commands answer beside records: `python -m gangline.line.schemas docs/schemas`."""

import sys
from pathlib import Path

from gangline.report.compare_types import Comparison
from gangline.spec.bisect import BisectState
from gangline.spec.profiling import ProfileSummary
from gangline.spec.schema import write_schemas

ANSWERS: dict[str, type] = {"bisect": BisectState, "comparison": Comparison, "profile": ProfileSummary}


if __name__ == "__main__":
    for path in write_schemas(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/schemas"), ANSWERS):
        sys.stdout.write(f"{path}\n")
