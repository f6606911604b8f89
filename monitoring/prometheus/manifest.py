"""Rules and alerts as a PrometheusRule: `python -m monitoring.prometheus.manifest`; `--check` only looks.

For clusters with the Prometheus operator, from the very files that a plain Prometheus reads.
"""

import sys
from pathlib import Path

import yaml

HERE = Path(__file__).parent
TARGET = HERE.parents[1] / "manifests" / "monitoring" / "prometheus-rule.yaml"
_HEAD = "# Written from monitoring/prometheus/{rules,alerts} by python -m monitoring.prometheus.manifest.\n"


def render() -> str:
    files = [*sorted((HERE / "rules").glob("*.yml")), *sorted((HERE / "alerts").glob("*.yml"))]
    groups = [group for each in files for group in yaml.safe_load(each.read_text("utf-8"))["groups"]]
    rule = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "gangline"},
        "spec": {"groups": groups},
    }
    return _HEAD + yaml.safe_dump(rule, sort_keys=False, width=120, allow_unicode=True)


def main(arguments: list[str]) -> int:
    if "--check" in arguments:
        if TARGET.is_file() and TARGET.read_text("utf-8") == render():
            return 0
        sys.stderr.write(f"{TARGET} is not current; run python -m monitoring.prometheus.manifest\n")
        return 1
    TARGET.write_text(render(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
