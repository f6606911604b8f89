"""The operator's rules are the files that a plain Prometheus reads."""

import yaml
from monitoring.prometheus.manifest import TARGET, main, render
from tests.monitoring.sources import ALERTS, RULES, rules_of

KUSTOMIZATION = TARGET.with_name("kustomization.yaml")


def test_the_committed_rule_is_current():
    """To update: python -m monitoring.prometheus.manifest."""
    assert TARGET.read_text("utf-8") == render()
    assert main(["--check"]) == 0


def test_it_holds_every_rule_and_alert():
    rule = yaml.safe_load(TARGET.read_text("utf-8"))
    held = [each for group in rule["spec"]["groups"] for each in group["rules"]]
    assert held == rules_of([*RULES, *ALERTS])
    assert rule["metadata"] == {"name": "gangline"}


def test_the_kustomization_applies_everything_in_its_folder():
    resources = yaml.safe_load(KUSTOMIZATION.read_text("utf-8"))["resources"]
    assert sorted(resources) == sorted(
        path.name for path in KUSTOMIZATION.parent.glob("*.yaml") if path != KUSTOMIZATION
    )
