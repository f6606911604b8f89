"""What `doctor` and the documentation call seen is what `make test-versions` found to pass."""

import importlib
import re
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from tests.versions import results
from tests.versions.combination import ROOT, Check, Combination
from tests.versions.extras import EXTRAS, WITH_TORCH
from tests.versions.results import Result

from gangline.spec.versions import PYTHONS, TORCHES, is_seen

PYPROJECT = (ROOT / "pyproject.toml").read_text()


def result(**changed):
    checks = [Check(name=name, passed=True, seconds=7.0, said="12 passed, 1 skipped") for name in results.COLUMNS]
    plain = {
        "name": "3.12-2.11",
        "python": "3.12.1",
        "torch": "2.11.0",
        "of_lock": "3.13-2.13",
        "checks": tuple(checks),
    }
    return Result(**plain | changed)


def test_nothing_that_was_recorded_failed_and_each_version_that_is_called_seen_passed_every_check_in_a_pair():
    recorded = results.recorded()
    assert {check.passed for each in recorded for check in each.checks} == {True}
    found = [each for each in recorded if each.passed]
    assert [python for python in PYTHONS if any(is_seen(each.python, (python,)) for each in found)] == list(PYTHONS)
    assert [torch for torch in TORCHES if any(is_seen(each.torch, (torch,)) for each in found)] == list(TORCHES)


def test_the_page_is_drawn_from_what_was_recorded():
    assert results.PAGE.read_text("utf-8") == results.page(results.recorded()), "make test-versions RECORD=1"


def test_locks_and_package_name_the_same_versions():
    sys.path.insert(0, str(ROOT / "requirements"))
    try:
        install, lock = importlib.import_module("install"), importlib.import_module("lock")
    finally:
        sys.path.pop(0)
    newest = install.version_of(install.entries(ROOT / "requirements" / "run.txt"), "torch")
    assert (*lock.OTHER_TORCHES, newest.rpartition(".")[0]) == TORCHES
    assert re.findall(r"Python :: (3\.\d+)", PYPROJECT) == list(PYTHONS)
    oldest = SpecifierSet(re.search(r'requires-python = "(.*)"', PYPROJECT)[1])
    assert [version for version in ("3.10.9", "3.11.0") if version in oldest] == ["3.11.0"]
    torch = Requirement(re.search(r'"(torch>=[^"]*)"', PYPROJECT)[1]).specifier
    assert [version for version in ("2.10.1", f"{TORCHES[0]}.0") if version in torch] == [f"{TORCHES[0]}.0"]


def test_each_extra_is_tried_or_needs_torch_and_has_tests_that_are_there():
    extras = tomllib.loads(PYPROJECT)["project"]["optional-dependencies"]
    tried = {each.name for each in EXTRAS}
    assert tried | {*WITH_TORCH, "dev", "docs"} == extras.keys()
    assert all((ROOT / path).exists() for each in EXTRAS for path in each.slice)
    unbounded = [each for name in tried for each in map(Requirement, extras[name]) if not each.specifier]
    assert not unbounded, "the oldest version of it is none that anybody has"


def test_each_python_and_torch_is_locked_by_a_commit_of_another_driver():
    every = Combination.every(Path())
    assert len({each.of_lock for each in every}) == len(every) == len(PYTHONS) * len(TORCHES)
    assert all(each.of_lock[0] != each.python and each.of_lock[1] != each.torch for each in every)


def test_the_pair_of_the_gpu_kit_rehearses_it_and_no_other():
    pythons = dict.fromkeys(PYTHONS, Path("/usr/bin/python3"))
    last = {each.name: each.checks(pythons)[-1] for each in Combination.every(Path("a b"))}
    assert [name for name, (check, _) in last.items() if check == "gpu kit"] == ["3.12-2.11"]
    said = last["3.12-2.11"][1][-1]
    assert "kit.py 'a b/gpu-kit' && cd 'a b/gpu-kit' && " in said
    assert said.endswith("session.py --rehearse all --seconds 300")


def test_a_check_that_failed_or_was_not_run_is_not_a_pass():
    failed = Check(name="demo", passed=False, seconds=1.0, said="error: refused")
    done = result().checks
    assert result().passed
    assert not result(checks=(done[0], failed, *done[2:])).passed
    assert not result(checks=done[:3]).passed
    assert not result(checks=done[:4]).passed, "the pair of the kit rehearses it"
    assert result(name="3.11-2.11", checks=done[:4]).passed
    found = ["3.12.1", "2.11.0", "not run", "FAILED, 1 s", "not run", "not run"]
    assert result(checks=(failed,)).cells() == [*found, "not run"]
    assert result(name="3.11-2.11", checks=(failed,)).cells() == [*found, ""]


def test_a_table_has_a_row_for_each_pair():
    lines = results.table([result(), result(python="3.13.0")]).splitlines()
    assert lines[0].split() == ["python", "torch", *results.NAMES, "gpu", "kit"]
    assert lines[1] == "3.12.1  2.11.0  ok, 7 s  ok, 7 s  ok, 7 s, 3.13 with 2.13  ok, 7 s, 12 passed  ok, 7 s"
    assert lines[2].startswith("3.13.0")


@pytest.mark.parametrize("known", [[], ["3.12-2.11", "3.13-2.15"]])
def test_what_a_part_of_the_pairs_came_to_replaces_theirs_alone(tmp_path, monkeypatch, known):
    monkeypatch.setattr(results, "FILE", tmp_path / "versions.json")
    monkeypatch.setattr(results, "PAGE", tmp_path / "versions.md")
    results.merge([result(name=name, torch="old") for name in known])
    results.merge([result()])
    kept = [(each.name, each.torch) for each in results.recorded()]
    assert kept == [("3.12-2.11", "2.11.0"), *((name, "old") for name in known[1:])]
    assert results.PAGE.read_text() == results.page(results.recorded())
