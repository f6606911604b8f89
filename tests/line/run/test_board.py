"""The link from a record to its board: the right board, the run chosen, the time it was made."""

from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

from monitoring.grafana.boards import frame
from monitoring.grafana.build import render
from tests.report.records import passed

from gangline.line.run.run_metrics import COMMIT_BOARD, grafana_url
from gangline.spec.config.site import MetricsTable, ServeTable, Site

GRAFANA = MetricsTable(grafana_url="https://grafana.example/")


def test_the_link_opens_the_board_on_the_run_and_its_time():
    record = passed()
    url = urlsplit(grafana_url(record, Site(metrics=GRAFANA)) or "")
    asked = {name: value for name, (value,) in parse_qs(url.query).items()}
    assert (url.netloc, url.path) == ("grafana.example", f"/d/{COMMIT_BOARD}")
    assert (asked["var-run"], asked["var-project"], asked["to"]) == (record.run.id, record.run.project, "now")
    assert asked["from"].isdecimal()
    assert len(asked["from"]) == 13


def test_it_names_a_board_and_variables_that_exist():
    url = urlsplit(
        grafana_url(passed(), Site(metrics=GRAFANA, serve=ServeTable(public_url="https://line.example"))) or ""
    )
    assert frame.COMMIT == COMMIT_BOARD
    board = render("commit")
    for name in parse_qs(url.query):
        assert name in ("from", "to") or f'"name": "{name.removeprefix("var-")}"' in board


def test_without_a_grafana_there_is_no_link():
    assert grafana_url(replace(passed(), links={}), Site()) is None
