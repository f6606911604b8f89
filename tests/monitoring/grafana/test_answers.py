"""Every expression of the boards, asked of a real Prometheus that holds two real runs: answers of the right shape."""

import math
import re

import pytest
from tests.monitoring.grafana.expressions import Expression, expressions, filled, series_named
from tests.monitoring.grafana.recording import Recording, load

pytestmark = pytest.mark.tools

SILENT = {
    "Held but silent": "no gang of the recording hung",
    "Gangs waiting": "the machine was free",
    "Failures by stage and exit code": "no stage failed",
    "Stage {{stage}} failed": "no stage failed",
    "Restarts": "no gang started again",
    "Store: calls that failed {{operation}}": "none failed",
    "Throughput tokens/s": "a classifier reads no tokens",
    "Held, but not computing": "its GPU is busy",
}
"""Panels that show nothing where nothing is wrong; their expressions are asked for their grammar."""
BOUNDS = {
    "percentunit": (0, 10), "s": (0, 3600), "bytes": (1e6, 1e12), "reqps": (0, 1000), "sci": (0, 1),
}  # fmt: skip
"""Of values of this recording, by unit: a ratio is no percentage, seconds are no milliseconds."""


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    made = load(tmp_path_factory.mktemp("recording"))
    yield made
    made.server.close()


@pytest.fixture(scope="module")
def known(recording):
    return recording.names()


@pytest.mark.parametrize("each", expressions(), ids=lambda each: f"{each.board}: {each.place}")
def test_every_expression_is_answered_in_its_shape_and_unit(each, recording, known):
    found = answers(each, recording)
    if {each.place, f"{each.place} {each.legend}"} & SILENT.keys() or not series_named(each.text) <= known:
        return  # a line without GPUs and prices has no series of them; the devices of the recording are made up
    assert found, f"{each} is empty at every moment"
    for labels, value in found:
        assert math.isfinite(value), each
        low, high = BOUNDS.get(each.unit, (-math.inf, math.inf)) if "forecast" not in each.place else (0, math.inf)
        assert low <= value <= high, (str(each), labels, value)
        assert set(re.findall(r"\{\{(\w+)\}\}", each.legend)) <= set(labels), (str(each), labels)


def answers(each: Expression, recording: Recording) -> list[tuple[dict[str, str], float]]:
    """(labels, value) at the end of the recording and in the middle of the training; curves at every point."""
    text = filled(each.text, recording.values)
    if each.instant:
        found = [row for at in (recording.end, recording.training) for row in recording.server.query(text, at=at)]
        return [(row["metric"], float(row["value"][1])) for row in found]
    rows = recording.server.range(text, start=recording.start, end=recording.end, step=5)
    return [(row["metric"], float(value)) for row in rows for _, value in row["values"] if value != "NaN"]


def one(each: str, recording: Recording) -> float:
    (panel,) = [expression for expression in expressions() if str(expression).startswith(each + ": ")]
    return answers(panel, recording)[0][1]


def test_single_numbers_are_single(recording):
    """A panel without a legend has room for one number."""
    for each in expressions():
        if each.panel.get("type") == "stat" and "{{" not in each.legend:
            rows = recording.server.query(filled(each.text, recording.values), at=recording.end)
            assert len(rows) <= 1, each


def test_tables_have_the_columns_that_they_show(recording, known):
    for each in (each for each in expressions() if each.panel.get("type") == "table"):
        wanted = next(step["options"]["include"]["names"] for step in each.panel["transformations"] if "include" in
                      step["options"])  # fmt: skip
        queries = [other for other in expressions() if (other.board, other.place) == (each.board, each.place)]
        if not all(series_named(query.text) <= known for query in queries):
            continue  # no server answered in this recording
        found = {f"Value #{target['refId']}" for target in each.panel["targets"]}
        for query in queries:
            for labels, _ in answers(query, recording):
                found |= set(labels)
        assert set(wanted) <= found | {"metric"}, each.place


def test_the_newest_run_is_the_one_that_a_commit_opens_with(recording):
    (variable,) = [each for each in expressions() if each.place == "variable run"]
    rows = recording.server.query(filled(variable.text, recording.values | {"commit": ".*"}), at=recording.end)
    assert rows[0]["metric"]["run"] == recording.values["run"]
    assert len(rows) == 2


def test_marks_stand_at_the_time_when_a_run_was_made(recording):
    marks = [each for each in expressions() if each.place == "annotation Commits" and each.board == "line"]
    (mark,) = marks
    times = {value / 1000 for _, value in answers(mark, recording)}
    assert len(times) == 2
    assert all(recording.start - 60 < at < recording.end for at in times)


def test_the_board_says_what_the_record_says(recording):
    """Final loss and ledger of the last run: as its driver wrote them, not as a rank was last scraped."""
    assert one("commit: Loss", recording) == recording.server.value(
        f'last_over_time(gangline_train_loss{{run="{recording.values["run"]}", job="gangline-serve"}}[1h])',
        at=recording.end,
    )
