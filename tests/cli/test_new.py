"""`gangline new`: a repository that its own commands accept."""

import json
import subprocess
from pathlib import Path

import pytest

from gangline.cli import templates
from gangline.errors import UsageError
from gangline.spec.config.load import load_line


@pytest.fixture
def identity(monkeypatch):
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "t")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "t@example.org")


def test_the_new_repository_is_committed_clean_and_its_line_holds(gangline, tmp_path, monkeypatch, identity):
    monkeypatch.chdir(tmp_path)
    result = gangline("new", "demo")
    assert result.exit_code == 0, result.output
    assert "next: cd demo && gangline plan" in result.stdout
    assert load_line(tmp_path / "demo").project.name == "demo"
    status = subprocess.run(
        ["git", "-C", "demo", "status", "--porcelain"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert status.stdout == ""


def test_json_lists_the_files(gangline, tmp_path, monkeypatch, identity):
    monkeypatch.chdir(tmp_path)
    document = json.loads(gangline("new", "demo", "--json").stdout)
    assert {"line.toml", "model.py", "README.md"} <= set(document["files"])


def test_without_a_git_author_there_is_a_commit_all_the_same_and_that_is_said(gangline, tmp_path, monkeypatch):
    (tmp_path / "gitconfig").write_text("[user]\nuseConfigOnly = true\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.chdir(tmp_path)
    result = gangline("new", "demo")
    assert "git config --global user.name" in result.stderr
    log = ["git", "-C", "demo", "log", "--format=%an"]
    assert subprocess.run(log, capture_output=True, text=True, check=True, cwd=tmp_path).stdout == "gangline\n"


@pytest.mark.parametrize("name", ["Demo", "1st", "a" * 21, "de_mo", "x; rm -rf y"])
def test_a_name_that_no_project_may_have_is_refused(gangline, name):
    assert isinstance(gangline("new", name).exception, UsageError)


def test_what_is_there_is_never_overwritten(gangline, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").mkdir()
    result = gangline("new", "demo")
    assert result.exit_code == 2
    assert "there already" in str(result.exception)


def test_an_unknown_template_names_those_there_are(gangline, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = gangline("new", "demo", "--template", "rocket")
    assert "model" in str(result.exception)
    assert not (tmp_path / "demo").exists()


def test_templates_are_listed_with_what_is_in_them(gangline):
    folders = {each.name for each in Path(templates.__file__).parent.iterdir() if each.is_dir() and each.name[0] != "_"}
    assert folders == templates.TEMPLATES.keys()
    refused = gangline("new", "demo", "--template", "nosuch")
    assert refused.exit_code == 2
    listed = gangline("new", "--template")
    assert listed.exit_code == 0
    helped = " ".join(gangline("new", "--help").stdout.split())
    for name, text in templates.TEMPLATES.items():
        assert f"{name:<10} {text}" in str(refused.exception)
        assert f"{name:<10} {text}" in listed.stdout
        assert f"{name}, {text}" in helped
