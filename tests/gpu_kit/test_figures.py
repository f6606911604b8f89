"""Figures, each with one limit; a file that is whole after each of them."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu"


def module(name):
    spec = importlib.util.spec_from_file_location(f"gpu_{name}", ROOT / f"{name}.py")
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found
    spec.loader.exec_module(found)
    return found


figures, session = module("figures"), module("session")
WHERE = {"device": "NVIDIA H200", "driver": "580.1", "torch": "2.11.0", "python": "3.12.3", "cores": 16, "load": 0.1}


@pytest.fixture
def make(tmp_path):
    def made(**changes):
        return figures.Report(
            part="step", path=tmp_path / "step.json", names=("ratio", "share"), conditions=WHERE, **changes
        )

    return made


def reported(report):
    return json.loads(report.path.read_text())


def test_a_limit_is_held_on_its_own_side(make):
    report = make()
    report.add("ratio", 1.02, at_most=1.02, source="bare")
    report.add("share", 0.39, at_least=0.4, source="bare", unit="GB")
    assert [each["held"] for each in reported(report)["figures"]] == [True, False]
    text = figures.table(reported(report))
    assert "NVIDIA H200 · driver 580.1 · torch 2.11.0" in text
    assert "ratio   1.02     <=  1.02    held    bare" in text
    assert "share   0.39 GB  >=  0.4 GB  MISSED  bare" in text


def test_a_rehearsal_judges_nothing(make):
    report = make(is_rehearsal=True)
    report.add("ratio", 9.0, at_most=1.0, source="bare")
    assert reported(report)["figures"][0]["held"] is None
    assert "no limit is judged" in figures.table(reported(report))


def test_a_part_that_breaks_off_leaves_what_it_had(make):
    report = make()
    report.add("ratio", 1.0, at_most=1.02, source="bare")
    assert reported(report)["ended"] == "under way"
    assert reported(report)["missing"] == ["share"]
    report.end()
    assert reported(report)["ended"] == "without share"


@pytest.mark.parametrize("limits", [{}, {"at_most": 1.0, "at_least": 0.5}])
def test_a_figure_has_exactly_one_limit(make, limits):
    with pytest.raises(ValueError, match="wanted one limit"):
        make().add("ratio", 1.0, source="bare", **limits)


def test_a_figure_that_was_not_announced_is_refused(make):
    with pytest.raises(KeyError, match="speed"):
        make().add("speed", 1.0, at_most=1.0, source="bare")


@pytest.mark.parametrize(
    ("value", "announced", "code"), [(1.0, ("ratio",), 0), (1.1, ("ratio",), 1), (1.0, ("ratio", "share"), 1)]
)
def test_a_session_ends_with_1_where_a_limit_is_missed_or_a_figure_is_missing(make, value, announced, code, capsys):
    report = make()
    report.names = announced
    report.add("ratio", value, at_most=1.02, source="bare")
    report.end()
    sys.modules["figures"] = figures
    try:
        assert session.show(report.path, "step", 0, "") == code
    finally:
        del sys.modules["figures"]
    assert "step: " in capsys.readouterr().out
