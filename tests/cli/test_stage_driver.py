"""What drivers that call stage by stage are refused, and what they may not stop."""

import pytest
from tests.line import repositories

FIRST, SECOND = "https://jenkins.example/job/gangline/1/", "https://jenkins.example/job/gangline/2/"


@pytest.fixture
def driver(gangline, workspace, tmp_path, monkeypatch):
    """A command line whose store lies outside the repository, and a run that was built from the page FIRST."""
    repositories.commit(workspace, {"train.py": "pass\n"})
    site = tmp_path / "site.toml"
    site.write_text(f'[store]\nurl = "file:{tmp_path}/store"\n')
    monkeypatch.setenv("GANGLINE_SITE", str(site))
    resolved = gangline("stage", "resolve", "--commit", "HEAD", "--driver", "jenkins")
    run = resolved.stdout.split()[-1]
    assert gangline("stage", "build", "--run", run, "--driver", "jenkins", "--url", FIRST).exit_code == 0
    return gangline, run


def verdict(gangline, run):
    return gangline("show", run, "--oneline").stdout.split(" · ")[0].strip()


@pytest.mark.parametrize("is_repository", [False, True])
def test_a_stage_without_its_commit_is_refused_and_leaves_the_run_open(driver, tmp_path, monkeypatch, is_repository):
    gangline, run = driver
    (tmp_path / "elsewhere").mkdir()
    if is_repository:
        repositories.make_repository(tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert gangline("stage", "plan", "--run", run).exit_code == 2
    assert verdict(gangline, run) == "open"


def test_a_stage_of_a_run_that_has_ended_needs_no_commit(driver, tmp_path, monkeypatch):
    gangline, run = driver
    assert gangline("cancel", run).exit_code == 70
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert gangline("stage", "plan", "--run", run).exit_code == 70
    assert gangline("report", run, "--format", "junit", "--out", "junit.xml").exit_code == 0


def test_a_build_cancels_the_run_that_it_drives(driver):
    gangline, run = driver
    assert gangline("cancel", run, "--url", FIRST).exit_code == 70
    assert verdict(gangline, run) == "cancelled"


def test_a_build_cancels_no_run_that_another_build_drives(driver):
    gangline, run = driver
    result = gangline("cancel", run, "--url", SECOND)
    assert (result.exit_code, verdict(gangline, run)) == (0, "open")
    assert f"{FIRST} drives it now" in result.stdout


def test_a_run_that_was_never_driven_from_a_page_is_cancelled_by_every_build(gangline, workspace):
    repositories.commit(workspace, {"train.py": "pass\n"})
    run = gangline("stage", "resolve", "--commit", "HEAD").stdout.split()[-1]
    assert gangline("cancel", run, "--url", SECOND).exit_code == 70
