"""A driver in the background: how its start is told, and that neither it nor a killed one leaves a folder for long."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from tests.line import repositories

from gangline.cli import background_driver
from gangline.cli.background_driver import remove_stale_folders, start_driver
from gangline.errors import ConfigError


@pytest.fixture
def temp(tmp_path, monkeypatch):
    folder = tmp_path / "temp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setattr(background_driver, "YOUNG_SECONDS", 0.0)
    return folder


def wait_for(claim, what):
    deadline = time.monotonic() + 120
    while not claim():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@contextmanager
def long_run(tmp_path, monkeypatch):
    """A detached driver whose gang never ends by itself."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    files = {"line.toml": repositories.LINE, "answer.py": repositories.LONG_PROGRAM}
    repo = repositories.make_repository(tmp_path / "repo", files)
    repositories.settle_inventory(repo)
    driver = start_driver([str(repo)])
    try:
        wait_for(lambda: list(repo.glob(".gangline/gangs/**/out/began")), "the gang runs")
        yield driver, repo
    finally:
        driver.process.kill()
        driver.process.wait()
        subprocess.run(
            [sys.executable, "-m", "gangline", "cancel", driver.run, "--now", "--repo", str(repo)],
            capture_output=True, check=False,
        )  # fmt: skip


def test_a_driver_that_ends_before_its_run_has_a_name_reports_why_and_leaves_no_folder(tmp_path, temp):
    with pytest.raises(ConfigError, match=r"line\.toml"):
        start_driver([str(tmp_path)])
    assert list(temp.iterdir()) == []


def test_a_folder_stays_while_its_driver_lives_and_goes_with_it(tmp_path, temp, monkeypatch):
    with long_run(tmp_path, monkeypatch) as (driver, _):
        assert remove_stale_folders() == []
        assert driver.log.read_text().count("\n") > 1
        os.kill(driver.process.pid, signal.SIGTERM)
        driver.process.wait(120)
        assert list(temp.iterdir()) == []


def test_what_a_killed_driver_left_goes_though_its_gang_lives(tmp_path, temp, monkeypatch):
    with long_run(tmp_path, monkeypatch) as (driver, _):
        os.kill(driver.process.pid, signal.SIGKILL)
        driver.process.wait(120)
        assert driver.log.exists()
        assert remove_stale_folders() == [driver.log.parent]
        assert list(temp.iterdir()) == []


def test_folders_that_are_young_or_of_others_stay(temp, monkeypatch):
    other = temp / "gangline-other"
    empty = temp / f"{background_driver.PREFIX}empty"
    for folder in (other, empty):
        folder.mkdir()
    (other / "lock").touch()
    link = temp / f"{background_driver.PREFIX}link"
    link.symlink_to(other)
    assert remove_stale_folders() == []
    (empty / "lock").touch()
    monkeypatch.setattr(background_driver, "YOUNG_SECONDS", 60.0)
    assert remove_stale_folders() == []
    assert other.is_dir()
    assert link.is_symlink()
