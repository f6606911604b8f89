"""The files of `monitoring/prometheus`, and every expression in them."""

from pathlib import Path
from typing import Any

import yaml

MONITORING = Path(__file__).resolve().parents[2] / "monitoring"
PROMETHEUS = MONITORING / "prometheus"
RULES = sorted((PROMETHEUS / "rules").glob("*.yml"))
ALERTS = sorted((PROMETHEUS / "alerts").glob("*.yml"))
RUNBOOKS = MONITORING.parent / "docs" / "runbooks"


def rules_of(paths: list[Path]) -> list[dict[str, Any]]:
    return [rule for path in paths for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]
