"""What all boards have alike: uid, variables, commits as annotations, links to each other and to the run's own page."""

from collections.abc import Iterable, Sequence
from typing import Any

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as model
from monitoring.grafana.boards.panels import SOURCE

SERVICE = "http://127.0.0.1:8321"
"""Where `gangline serve` listens unless its site says otherwise; a text box of each board."""
COMMIT, LINE, FLEET = "gangline-commit", "gangline-line", "gangline-fleet"
RUN_PAGE = "${service}/runs/"
ROW = tuple[str, Sequence[Any]]
"""Title of a row, and its panels."""


class CommitMarks(model.AnnotationQuery):
    """A mark where each run was made, by a query: so no Grafana credential exists that could leak."""

    def to_json(self) -> dict[str, object]:
        return {
            **super().to_json(),
            "step": "60s",
            "useValueForTime": True,
            "titleFormat": "{{project}} {{commit}}",
            "textFormat": "{{branch}} · {{run}}",
            "tagKeys": "branch",
        }


class CommitMarksBuilder(dashboard.AnnotationQuery):
    """The same, for the builder of a board."""

    def __init__(self, expr: str) -> None:
        super().__init__()
        self._internal: model.AnnotationQuery = CommitMarks(
            name="Commits", datasource=SOURCE, icon_color="light-blue", expr=expr, built_in=None
        )


def board(
    uid: str, title: str, says: str, *, variables: Iterable[Any], marks: str, rows: Sequence[ROW], span: str
) -> dashboard.Dashboard:
    """A board; panels are numbered in reading order, so that ids stay the same as long as the order does."""
    made = dashboard.Dashboard(title).uid(uid).description(says).tags(["gangline"]).readonly().timezone("browser")
    made.tooltip(model.DashboardCursorSync.CROSSHAIR).refresh("30s").time(f"now-{span}", "now").version(1)
    made.annotation(CommitMarksBuilder(marks))
    for variable in (_source(), *variables, _service()):
        made.with_variable(variable)
    for link in _links(uid):
        made.link(link)
    number = 0
    for heading, panels in rows:
        number += 1
        made.with_row(dashboard.Row(heading).id(number))
        for panel in panels:
            number += 1
            made.with_panel(panel.id(number))
    return made


def asked(name: str, label: str, query: str, *, every: bool, says: str, regex: str = "") -> dashboard.QueryVariable:
    """A variable whose choices come from a query; `every` adds the choice of all of them."""
    made = dashboard.QueryVariable(name).label(label).description(says).datasource(SOURCE)
    made.query({"query": query, "refId": name}).refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
    made.sort(model.VariableSort.DISABLED if regex else model.VariableSort.ALPHABETICAL_ASC)
    if regex:
        made.regex(regex)
    if every:
        made.include_all(True).all_value(".*").multi(True)
        made.current(model.VariableOption(selected=True, text=["All"], value=["$__all"]))
    return made


def project(*, every: bool) -> dashboard.QueryVariable:
    says = "Project of the line, as line.toml names it."
    return asked("project", "Project", "label_values(gangline_run_info, project)", every=every, says=says)


def _source() -> dashboard.DatasourceVariable:
    return dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus")


def _service() -> dashboard.TextBoxVariable:
    box = dashboard.TextBoxVariable("service").label("Service").default_value(SERVICE)
    box.current(model.VariableOption(selected=True, text=SERVICE, value=SERVICE))
    return box.description("Address of gangline serve; links to run pages, forge and pipelines begin there.")


def _links(uid: str) -> list[dashboard.DashboardLink]:
    boards = {COMMIT: "Commit", LINE: "Line", FLEET: "Fleet"}
    others = [
        dashboard.DashboardLink(f"{name} board").type(model.DashboardLinkType.LINK).icon("dashboard")
        .url(f"/d/{each}").include_vars(True).keep_time(True)
        for each, name in boards.items() if each != uid
    ]  # fmt: skip
    runs = dashboard.DashboardLink("All runs").type(model.DashboardLinkType.LINK).icon("external link")
    return [*others, runs.url("${service}/runs").target_blank(True)]
