"""Published JSON schemas of what commands answer beside records: `python -m gangline.line.schemas docs/schemas`."""

import json
import sys
from pathlib import Path

from gangline.report.compare_types import Comparison
from gangline.spec.bisect import BisectState
from gangline.spec.profiling import ProfileSummary
from gangline.spec.schema import schema_of

ANSWERS: dict[str, type] = {"bisect": BisectState, "comparison": Comparison, "profile": ProfileSummary}


def write_answer_schemas(folder: Path) -> list[Path]:
    """One file an answer; returns what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, cls in ANSWERS.items():
        written.append(folder / f"{name}.json")
        written[-1].write_text(json.dumps(schema_of(cls), indent=2, ensure_ascii=False) + "\n", "utf-8")
    return written


if __name__ == "__main__":
    for path in write_answer_schemas(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/schemas")):
        sys.stdout.write(f"{path}\n")
