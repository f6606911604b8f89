"""Writes the boards as Grafana reads them: `python -m monitoring.grafana.build`; `--check` only looks.

The schema is that of Grafana 11.6. The same sources give the same bytes; the files under `dashboards/` are committed,
read in review, and provisioned as they are.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from monitoring.grafana.boards.commit import commit_board
from monitoring.grafana.boards.fleet import fleet_board
from monitoring.grafana.boards.line import line_board

FOLDER = Path(__file__).parent / "dashboards"
BOARDS: dict[str, Callable[[], Dashboard]] = {"commit": commit_board, "line": line_board, "fleet": fleet_board}


def render(name: str) -> str:
    """The JSON of a board, keys sorted."""
    return json.dumps(BOARDS[name]().build(), cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def stale() -> list[str]:
    """Boards whose committed file is not what the sources say."""
    files = {name: FOLDER / f"{name}.json" for name in BOARDS}
    return [name for name, file in files.items() if not file.is_file() or file.read_text("utf-8") != render(name)]


def main(arguments: list[str]) -> int:
    old = stale()
    if "--check" in arguments:
        for name in old:
            sys.stderr.write(f"{FOLDER / name}.json is not current; run python -m monitoring.grafana.build\n")
        return 1 if old else 0
    FOLDER.mkdir(exist_ok=True)
    for name in old:
        (FOLDER / f"{name}.json").write_text(render(name), "utf-8")
    sys.stdout.write(f"boards written: {', '.join(old) or 'none, all are current'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
