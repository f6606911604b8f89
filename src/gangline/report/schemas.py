"""Published JSON schemas of commands' answers: `python -m gangline.report.schemas docs/schemas`."""

import sys
from pathlib import Path

from gangline.report.comparison.types import Comparison
from gangline.spec.bisect import BisectState
from gangline.spec.documents.schema import write_schemas
from gangline.spec.gang.profiling import ProfileSummary

ANSWERS: dict[str, type] = {"bisect": BisectState, "comparison": Comparison, "profile": ProfileSummary}


if __name__ == "__main__":
    for path in write_schemas(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/schemas"), ANSWERS):
        sys.stdout.write(f"{path}\n")
