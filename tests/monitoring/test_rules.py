"""Rules and alerts name what there is, and each alert is tested and explained."""

import re

import pytest
import yaml
from tests.monitoring.prometheus import promtool
from tests.monitoring.sources import ALERTS, MONITORING, PROMETHEUS, RULES, RUNBOOKS, rules_of
from typer.testing import CliRunner

from gangline.cli.main import app
from gangline.metrics.catalogue import CATALOGUE
from gangline.metrics.promql import check_expressions, expressions_in

NAMES = [rule["alert"] for rule in rules_of(ALERTS)]
WANTED = {
    "RunStalled", "RankSlow", "LossOutsideBand", "LossNotFinite", "GangWaitingLong", "GangRestarting", "GpusHeldSilent",
    "RoundsLost",
    "PushesStale", "WorkersCutOff",
    "CheckpointOld", "LedgerUnexplained", "ForecastOff", "WebhookSlow", "QueueStuck", "ForgeFailing",
    "StoreNotConditional", "StoreErrors", "LeaseOverdue", "SeriesDropped",
}  # fmt: skip
every_alert = pytest.mark.parametrize("name", NAMES)


def test_every_alert_is_there_once():
    assert sorted(NAMES) == sorted(WANTED)


def test_every_expression_of_rules_and_boards_names_what_is_declared_or_recorded():
    found = list(expressions_in(MONITORING))
    assert len(found) > 100
    assert check_expressions(found) == ()


def test_the_command_says_so_too():
    result = CliRunner().invoke(app, ["metrics", "check", str(MONITORING)])
    assert result.exit_code == 0, result.output
    assert "expressions, each of series that are declared or recorded" in result.output


def test_every_recorded_series_is_used():
    used = " ".join(expression for _, expression in expressions_in(MONITORING))
    guide = "".join(path.read_text() for path in MONITORING.parent.glob("docs/guides/monitoring.md"))
    for rule in rules_of(RULES):
        assert rule["record"] in used + guide, rule["record"]


def test_every_alert_has_severity_words_and_a_page_that_is_there():
    for rule in rules_of(ALERTS):
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert set(rule["annotations"]) == {"summary", "description", "runbook"}
        assert (MONITORING.parent / rule["annotations"]["runbook"]).is_file()


@every_alert
def test_a_runbook_says_what_it_means_how_to_see_it_and_what_to_do_with_commands_that_exist(name):
    text = (RUNBOOKS / f"{name}.md").read_text()
    assert text.startswith(f"# {name}\n")
    for heading in ("## What it means", "## How to see it", "## What to do"):
        assert heading in text
    commands = re.findall(r"gangline ([a-z]+)((?: [a-z]+)?)", text)
    assert commands
    for command, below in commands:
        group = [command, below.strip()] if command in ("store", "metrics", "token", "hook") else [command]
        result = CliRunner().invoke(app, [*filter(None, group), "--help"])
        assert result.exit_code == 0, (group, result.output)


def test_every_test_is_of_an_alert_or_of_what_is_recorded():
    assert {path.stem for path in (PROMETHEUS / "tests").glob("*.yml")} == {*NAMES, "rules"}


def test_every_runbook_is_of_an_alert():
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == set(NAMES)


@every_alert
def test_an_alert_is_tested_to_fire_to_stay_quiet_and_to_go(name):
    asked = [
        case
        for test in yaml.safe_load((PROMETHEUS / "tests" / f"{name}.yml").read_text())["tests"]
        for case in test["promql_expr_test"]
        if f'alertname="{name}"' in case["expr"]
    ]
    fires = [bool(case["exp_samples"]) for case in asked]
    assert not all(fires[fires.index(True) :])


@pytest.mark.tools
@pytest.mark.parametrize("name", [*NAMES, "rules"])
def test_promtool_agrees(name):
    assert "SUCCESS" in promtool("test", "rules", PROMETHEUS / "tests" / f"{name}.yml")


@pytest.mark.tools
def test_promtool_reads_every_file():
    assert promtool("check", "rules", *RULES, *ALERTS).count("SUCCESS") == len([*RULES, *ALERTS])
    assert "SUCCESS" in promtool("check", "config", "--syntax-only", PROMETHEUS / "prometheus.yml")


@pytest.mark.tools
def test_the_configuration_of_a_cluster_is_sound_but_for_what_this_prometheus_was_built_without(tmp_path):
    config = yaml.safe_load((PROMETHEUS / "prometheus-kubernetes.yml").read_text())
    config["rule_files"] = [str(PROMETHEUS / each) for each in config["rule_files"]]
    for job in config["scrape_configs"]:
        assert {each["role"] for each in job.pop("kubernetes_sd_configs")} <= {"pod", "service"}
        job["static_configs"] = [{"targets": ["127.0.0.1:1"]}]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    promtool("check", "config", "--syntax-only", tmp_path / "prometheus.yml")


def test_runbooks_name_series_and_keys_that_exist():
    recorded = [(rule["record"], rule["expr"]) for rule in rules_of(RULES)]
    reference = "".join(path.read_text() for path in (MONITORING.parent / "docs/reference").glob("*.md"))
    for path in RUNBOOKS.glob("*.md"):
        spans = set(re.findall(r"`([^`\n]+)`", path.read_text())) - CATALOGUE.keys()
        assert check_expressions([*recorded, *(("", span) for span in spans)]) == (), path.name
        for table, key in re.findall(r"`((?:\w+\.)+)(\w+)(?: =[^`]*)?`", path.read_text()):
            assert f"[{table.rstrip('.')}]" in reference or table.startswith("forge."), f"{path.name}: {table}{key}"
            assert f"`{key}`" in reference, f"{path.name}: {table}{key}"
