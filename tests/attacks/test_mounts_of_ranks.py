"""Ranks put links and second names where the next start of a sandbox mounts, creates or gives away folders."""

import os
import shutil
from pathlib import Path

import pytest
from tests.attacks.machine_users import ENGINES, ENGINES_IN_TURN, drive, place_of_a_user, plant, require_users
from tests.contracts.launcher.gangs import SLEEPER, Stand, sandbox_here

from gangline.errors import IntegrityError
from gangline.launch.local.folder import GangFolder
from gangline.launch.sandbox.host_paths import give, make_own

pytestmark = [pytest.mark.row("P5"), pytest.mark.timeout(240)]
DRIVER = Path(__file__).with_name("drive_attacks.py")
UID = 65532


@pytest.fixture
def place():
    with place_of_a_user() as folder:
        yield folder


@pytest.mark.parametrize("attack", ["swapped_folders", "swapped_checkpoint"])
@pytest.mark.parametrize("trust", ["own", pytest.param("fork", marks=pytest.mark.slow)])
@pytest.mark.parametrize("engine", ENGINES_IN_TURN)
def test_a_link_shows_and_changes_nothing_of_the_driver(place, engine, trust, attack):
    user, bubblewrap = ENGINES[engine]
    require_users(bubblewrap=bubblewrap)
    canary = plant(place, hidden=bubblewrap)
    found = drive(place, DRIVER, attack, trust, user=user, bubblewrap=bubblewrap)
    assert canary not in str(found), found
    assert found["engine"] == ("bubblewrap" if bubblewrap else "user")
    assert not any(each for life in found["loot"] for each in life)
    assert len(found["loot"]) == (2 if attack == "swapped_folders" else 1), "it was started, and started again"
    assert sorted(path.name for path in (place / "home" / ".ssh").iterdir()) == ["id"]


def test_what_a_gang_left_whose_submitter_died_is_neither_written_through_nor_mounted(tmp_path):
    """No keeper was recorded, so that the next driver starts the gang anew in its folder."""
    stand = Stand(tmp_path, sandbox=sandbox_here(tmp_path, "own"))
    private = tmp_path / "private"
    private.mkdir()
    try:
        stand.launcher.submit(podset := stand.podset(SLEEPER, ranks=1))
        folder = GangFolder(stand.root / "run-1")
        stand.wait_for_all("run-1")
        stand.launcher.cancel("run-1", reason="enough", save=False)
        (folder.home / "launch.json").unlink()
        (folder.home / "cancel.json").unlink()
        for name in ("out", "logs", "heartbeat"):
            shutil.rmtree(folder.inside / name)
            (folder.inside / name).symlink_to(private)
        stand.again().submit(podset)
        stand.wait_for_all("run-1")
        assert not (folder.inside / "out").is_symlink()
        assert list(private.iterdir()) == []
    finally:
        stand.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, which gives files away")
def test_a_file_with_a_second_name_is_not_given_away(tmp_path):
    private, section = tmp_path / "private", tmp_path / "section"
    private.write_text("of the driver")
    (section / "inner").mkdir(parents=True)
    (section / "inner" / "plain").touch()
    (section / "inner" / "link").symlink_to(private)
    give(section, UID)
    assert (section / "inner" / "plain").stat().st_uid == UID
    (section / "inner" / "twice").hardlink_to(section / "inner" / "plain")
    give(section, UID)
    (section / "inner" / "second").hardlink_to(private)
    give(section, UID)
    assert private.stat().st_uid == 0


def test_a_link_in_the_place_of_a_folder_that_is_mounted_ends_the_start_with_50(tmp_path):
    (tmp_path / "private").mkdir()
    (tmp_path / "home").symlink_to(tmp_path / "private")
    with pytest.raises(IntegrityError, match=r"wanted the folder .*/home, found a link to .*/private"):
        make_own(tmp_path / "home", None)
