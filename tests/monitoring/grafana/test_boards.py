"""The boards as files: current, complete, in the words of the catalogue. What they answer is asked in test_answers."""

import re
import subprocess
import sys
from itertools import combinations

import pytest
import yaml
from monitoring.grafana.build import BOARDS, FOLDER, main, render, stale
from tests.monitoring.grafana.expressions import boards, expressions, panels, series_named
from tests.monitoring.sources import MONITORING, RULES, rules_of

from gangline.metrics.catalogue import CATALOGUE
from gangline.spec.config.site import ServeTable

OF_GRAFANA = {"row", "stat", "timeseries", "bargauge", "statushistory", "status-history", "state-timeline", "table"}
"""Panels that Grafana 11 and 12 draw; graph, singlestat, table-old, heatmap-old, worldmap are gone."""
every_board = pytest.mark.parametrize("name", BOARDS)


@every_board
def test_committed_boards_are_what_the_sources_say(name):
    assert (FOLDER / f"{name}.json").read_text("utf-8") == render(name)


def test_the_same_sources_give_the_same_bytes_in_another_process():
    ask = "from monitoring.grafana.build import render; import sys; sys.stdout.write(render('fleet'))"
    environ = {"PYTHONHASHSEED": "7", "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", ask], cwd=MONITORING.parent, env=environ, capture_output=True, check=True
    )
    assert done.stdout.decode() == render("fleet")


def test_check_says_which_board_is_stale(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("monitoring.grafana.build.FOLDER", tmp_path)
    assert stale() == list(BOARDS)
    assert main(["--check"]) == 1
    assert "fleet.json is not current" in capsys.readouterr().err
    assert main([]) == 0
    assert main(["--check"]) == 0


def test_uids_stay_and_titles_are_unique():
    found = boards()
    assert {name: board["uid"] for name, board in found.items()} == {
        "commit": "gangline-commit", "line": "gangline-line", "fleet": "gangline-fleet",
    }  # fmt: skip
    for board in found.values():
        ids = [panel["id"] for panel in board["panels"]]
        assert ids == list(range(1, len(ids) + 1))
        titles = [panel["title"] for panel in panels(board)]
        assert len(set(titles)) == len(titles)


@every_board
def test_every_panel_says_what_to_do_about_it_and_in_which_unit(name):
    for panel in panels(boards()[name]):
        assert len(panel["description"]) > 15, panel["title"]
        assert panel["description"].rstrip()[-1] in ".`", panel["title"]
        assert len(panel["title"]) <= 50
        if panel["type"] not in ("table", "state-timeline"):
            assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]


@every_board
def test_only_panels_that_grafana_still_draws_are_used(name):
    assert {panel["type"] for panel in boards()[name]["panels"]} <= OF_GRAFANA


@every_board
def test_panels_fill_their_rows_and_none_lies_on_another(name):
    places = [panel["gridPos"] for panel in boards()[name]["panels"]]
    for one, other in combinations(places, 2):
        apart = (
            one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        )  # fmt: skip
        assert apart, (one, other)
    for top in {place["y"] for place in places}:
        assert sum(place["w"] for place in places if place["y"] == top) == 24, (name, top)


def test_expressions_name_only_series_of_the_catalogue_and_rules_that_exist():
    known = {sample for series in CATALOGUE.values() for sample in series.sample_names}
    known |= {rule["record"] for rule in rules_of(RULES) if "record" in rule}
    for each in expressions():
        assert series_named(each.text) <= known | {"kube_node_status_allocatable"}, each


def test_no_expression_puts_text_of_strangers_into_a_shell_of_quotes():
    """A branch may hold a quote: it is only ever put in as a regular expression, which Grafana escapes."""
    for each in expressions():
        assert not re.search(r'(?:branch|commit)="\$', each.text), each


@every_board
def test_links_lead_to_boards_and_pages_that_exist(name):
    board = boards()[name]
    uids = {each["uid"] for each in boards().values()}
    text = (FOLDER / f"{name}.json").read_text("utf-8")
    assert set(re.findall(r"/d/([a-z-]+)", text)) <= uids - {board["uid"]} | {"gangline-commit"}
    assert len({link["url"] for link in board["links"] if link["url"].startswith("/d/")}) == len(uids) - 1
    assert set(re.findall(r"\$\{service\}(/\w+)", text)) == {"/runs"}


def test_the_service_is_looked_for_where_it_listens():
    for board in boards().values():
        box = next(each for each in board["templating"]["list"] if each["name"] == "service")
        assert box["query"] == f"http://{ServeTable().listen}"


def test_a_commit_is_a_mark_by_a_query_without_a_credential():
    for board in boards().values():
        (marks,) = board["annotations"]["list"]
        assert marks["useValueForTime"] is True
        assert "gangline_run_info" in marks["expr"]
        assert marks["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    provisioned = (MONITORING / "grafana" / "provisioning").rglob("*.yaml")
    for file in provisioned:
        words = yaml.safe_load(file.read_text("utf-8"))
        assert words["apiVersion"] == 1
        assert not re.search(r"password|token|secure", file.read_text("utf-8"), re.IGNORECASE), file
