"""Writes `openapi.json`, the OpenAPI document of the service: `python -m tools.openapi docs/schemas`."""

import json
import sys
from pathlib import Path

from gangline.serve.app import openapi_document


def openapi_text() -> str:
    return json.dumps(openapi_document(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def main(folder: Path) -> None:
    (folder / "openapi.json").write_text(openapi_text(), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
