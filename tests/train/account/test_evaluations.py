"""Metrics with the files of weights that they are of: digests at that time, names in a save, limits."""

import hashlib

import pytest

from gangline.errors import UsageError
from gangline.spec.gang.status import WeightsFile
from gangline.spec.output_limits import MOST_EVALUATIONS, MOST_WEIGHTS_FILES
from gangline.train.account.reports import Evaluations, weights_files
from gangline.train.api.program import Program


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_file_is_known_by_its_bytes_and_a_folder_by_all_that_is_in_it(folder):
    (folder / "out" / "deep").mkdir(parents=True)
    (folder / "out" / "a.pt").write_bytes(b"a")
    (folder / "out" / "deep" / "b.pt").write_bytes(b"b")
    assert weights_files("out/a.pt", saved={})["out/a.pt"].sha256 == hashlib.sha256(b"a").hexdigest()
    assert weights_files(folder / "out", saved={}).keys() == {"out/a.pt", "out/deep/b.pt"}
    assert weights_files(["out/a.pt", "s.npz"], saved={"s.npz": WeightsFile(blocks="b")})["s.npz"].blocks == "b"


@pytest.mark.parametrize("wanted", ["out/none.pt", ["out/none.pt"], "", [], 0.5])
def test_weights_that_are_not_there_are_refused_by_their_name(wanted):
    with pytest.raises(UsageError, match=r"program.report: weights: wanted"):
        weights_files(wanted, saved={})


def test_too_many_files_are_refused(folder):
    for number in range(MOST_WEIGHTS_FILES + 1):
        (folder / f"{number}.pt").touch()
    with pytest.raises(UsageError, match=f"wanted 1 to {MOST_WEIGHTS_FILES} files, found {MOST_WEIGHTS_FILES + 1}"):
        weights_files(folder, saved={})


def test_the_last_weights_are_kept_each_with_its_newest_metrics():
    found = Evaluations()
    for number in range(MOST_EVALUATIONS + 5):
        found.add(number, {"loss": 1.0}, {"w.pt": WeightsFile(sha256=str(number))})
        found.add(number, {"loss": 0.5, "more": 2.0}, {"w.pt": WeightsFile(sha256=str(number))})
    kept = found.all()
    assert [each.step for each in kept] == list(range(5, MOST_EVALUATIONS + 5))
    assert all(each.metrics == {"loss": 0.5, "more": 2.0} for each in kept)


def test_nothing_is_kept_where_no_weights_are_named():
    found = Evaluations()
    found.add(1, {"loss": 1.0}, {})
    assert found.all() == ()


def test_outside_a_gang_weights_are_looked_for_too(folder):
    (folder / "w.pt").write_bytes(b"w")
    with Program(steps=1) as program:
        program.step(loss=1.0)
        program.save({"state.pt": b"s"})
        program.report(eval_loss=1.0, weights="w.pt")
        program.report(eval_loss=1.0, weights="state.pt")
        with pytest.raises(UsageError, match=r"found no 'other.pt'"):
            program.report(eval_loss=1.0, weights="other.pt")
