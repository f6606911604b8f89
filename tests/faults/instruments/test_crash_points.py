"""The enumerator itself: a careful program passes at every point, planted mistakes are found and named."""

import sys
from pathlib import Path

import pytest
from tests.faults.instruments.crash_points import Counting, CrashFound, CrashPlan, digest_of, enumerate_crashes, keys_of

from gangline.storage.folder.store import FolderStore

PROGRAMS = Path(__file__).parent / "programs.py"


def run(name, tmp_path, **options):
    return enumerate_crashes(
        lambda folder: [sys.executable, str(PROGRAMS), name, str(folder)],
        digest=lambda folder: digest_of(FolderStore(folder / "store")),
        keys=lambda folder: keys_of(FolderStore(folder / "store")),
        scratch=tmp_path,
        **options,
    )


def test_careful_program_survives_every_point(tmp_path, capsys):
    checked = []

    def check(folder):
        assert not FolderStore(folder / "store").open_uploads()
        assert (folder / "done").exists()
        checked.append(folder.name)

    found = run("careful", tmp_path, check=check, recoveries=3, seed=7)
    assert [effect.partition(" ")[0] for effect in found.effects] == [
        "put_if_absent",
        "put",
        "compare_and_set",
        "put",
        "compare_and_set",
        "upload",
        "part",
        "complete",
        "touch",
    ]
    assert found.num_crashes == 2 * 9 + 3 == len(checked) - 1
    assert "K = 9 effects" in capsys.readouterr().out


def test_repeated_write_is_found(tmp_path):
    with pytest.raises(CrashFound, match=r"killed after effect 1 of 2 \(put log\): the restart left"):
        run("forgetful", tmp_path)


def test_restart_that_cannot_finish_is_found(tmp_path):
    with pytest.raises(CrashFound, match=r"(?s)killed after effect 1 of 3.*the lock is held") as found:
        run("stuck", tmp_path)
    assert "code 1" in str(found.value)


def test_effect_past_the_wrapper_is_found(tmp_path):
    with pytest.raises(CrashFound, match=r"past the wrapper.*\['unseen'\]"):
        run("bypassing", tmp_path)


def test_program_without_effects_is_refused(tmp_path):
    with pytest.raises(CrashFound, match="no effect was counted"):
        run("silent", tmp_path)


def test_one_point_can_be_replayed(tmp_path):
    assert run("careful", tmp_path, points=[3]).num_crashes == 2


def test_a_point_is_found_by_the_name_of_its_effect(tmp_path):
    with pytest.raises(CrashFound, match=r"killed after effect 1 of 2 \(put log\)"):
        run("forgetful", tmp_path, points=["put log"])


def test_a_name_that_no_effect_has_is_reported(tmp_path):
    with pytest.raises(CrashFound, match=r"no effect begins with 'submit '; there are .*'put'"):
        run("careful", tmp_path, points=["submit "])


def test_methods_of_any_object_can_be_effects(tmp_path):
    class Launcher:
        def submit(self, name):
            return f"gang {name}"

        def status(self):
            return "running"

    launcher = Counting(Launcher(), CrashPlan(tmp_path / "log"), submit=lambda name: name)
    assert launcher.status() == "running"
    assert launcher.submit("g1") == "gang g1"
    assert (tmp_path / "log").read_text() == "submit g1\n"
