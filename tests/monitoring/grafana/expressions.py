"""Every PromQL expression of the boards, out of the committed JSON, and what a Grafana puts in for its variables."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.monitoring.sources import MONITORING

DASHBOARDS = sorted((MONITORING / "grafana" / "dashboards").glob("*.json"))
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_OF_QUERY = re.compile(r"(label_values|query_result)\((.*)\)$", re.DOTALL)


@dataclass(frozen=True)
class Expression:
    """One of them, and where it stands."""

    board: str
    place: str
    """Title of the panel, `variable NAME` or `annotation NAME`."""
    text: str
    instant: bool
    panel: Mapping[str, Any]
    legend: str = ""

    def __str__(self) -> str:
        return f"{self.board}: {self.place}: {self.text}"

    @property
    def unit(self) -> str:
        return str(self.panel.get("fieldConfig", {}).get("defaults", {}).get("unit", ""))


def boards() -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text("utf-8")) for path in DASHBOARDS}


def panels(board: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All but the headings of rows."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def expressions() -> list[Expression]:
    return [each for name, board in boards().items() for each in _of_board(name, board)]


def _of_board(name: str, board: Mapping[str, Any]) -> Iterator[Expression]:
    for panel in panels(board):
        for target in panel["targets"]:
            legend = target["legendFormat"].replace("__auto", "")
            yield Expression(name, panel["title"], target["expr"], bool(target.get("instant")), panel, legend)
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield Expression(name, f"variable {variable['name']}", _asked(variable["query"]["query"]), True, {})
    for each in board["annotations"]["list"]:
        yield Expression(name, f"annotation {each['name']}", each["expr"], False, {})


def _asked(query: str) -> str:
    """What Grafana asks Prometheus for in a variable's query."""
    found = _OF_QUERY.match(query)
    assert found, query
    return found[2].rpartition(",")[0] if found[1] == "label_values" else found[2]


def filled(text: str, values: Mapping[str, str]) -> str:
    """The expression with each variable's value in its place; one without a value fails the test."""

    def value(match: re.Match[str]) -> str:
        return values[match[1] or match[2]]

    return _VARIABLE.sub(value, text)


def series_named(text: str) -> set[str]:
    """Names of series and rules in an expression: ours, and those of a cluster."""
    bare = re.sub(r'"[^"]*"', "", text)
    return set(re.findall(r"(?:\w+:)?gangline_[a-zA-Z0-9_:]+|kube_\w+", bare)) - {"gangline_gang"}
