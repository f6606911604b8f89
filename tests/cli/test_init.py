"""`gangline init`: a line for a repository that is there, written once, and its code never run."""

import json
import subprocess

import pytest
from tests.line import repositories

from gangline.errors import UsageError
from gangline.spec.config.load import load_line

SCRIPT = """\
import torch.distributed as dist
raise SystemExit("it was run")
dist.init_process_group("gloo")
"""


@pytest.fixture
def repo(tmp_path, monkeypatch):
    folder = repositories.make_repository(tmp_path / "mine", {"train.py": SCRIPT})
    monkeypatch.chdir(folder)
    return folder


def test_a_line_is_written_and_what_was_guessed_is_said(gangline, repo):
    result = gangline("init")
    assert result.exit_code == 0, result.output
    assert load_line(repo).project.command == ("python", "train.py")
    assert "script    train.py: torch.distributed, as torchrun starts it, line 3" in result.stdout
    assert "?         steps:" in result.stdout
    assert result.stdout.splitlines()[-1] == 'next      git add line.toml && git commit -m "A line" && gangline run'


def test_a_line_that_is_there_is_kept_unless_forced(gangline, repo):
    (repo / "line.toml").write_text("mine")
    result = gangline("init")
    assert isinstance(result.exception, UsageError)
    assert (repo / "line.toml").read_text() == "mine"
    assert gangline("init", "--dry-run").exit_code == 0
    assert (repo / "line.toml").read_text() == "mine"
    assert gangline("init", "--force").exit_code == 0
    assert load_line(repo).project.name == "mine"


def test_json_has_the_line_and_a_dry_run_writes_nothing(gangline, repo):
    document = json.loads(gangline("init", "--dry-run", "--json").stdout)
    assert document["script"] == {"path": "train.py", "kind": "torchrun", "line": 3, "shown_in": "train.py"}
    assert {key["key"] for key in document["keys"]} >= {"project.command", "train.steps"}
    assert not document["written"]
    assert not (repo / "line.toml").exists()


def test_what_is_not_committed_is_reported(gangline, repo):
    (repo / "train.py").write_text(SCRIPT + "x = 1\n")
    assert "note      not committed: train.py: commit or stash them" in gangline("init").stdout


def test_a_lock_that_git_does_not_track_is_named_and_not_called_missing(gangline, repo):
    (repo / "requirements-lock.txt").write_text(f"numpy==2.0.0 --hash=sha256:{'a' * 64}\n")
    said = gangline("init", "--dry-run").stdout
    assert "requirements-lock.txt is not committed: git add requirements-lock.txt" in said
    assert "no lock of packages" not in said
    subprocess.run(["git", "add", "requirements-lock.txt"], cwd=repo, check=True)
    assert 'lock = "requirements-lock.txt"' in gangline("init", "--dry-run").stdout


def test_documents_that_nothing_reads_are_left_out_and_the_line_says_why(gangline, repo):
    (repo / "docs").mkdir()
    for name in ("docs/page.rst", "README.md"):
        (repo / name).write_text("words")
    subprocess.run(["git", "add", "--all"], cwd=repo, check=True)
    text = gangline("init", "--dry-run").stdout
    assert "# no Python file names them; a change there does not train again" in text
    assert 'exclude = ["docs/**", "*.md"]' in text
    (repo / "corpus.py").write_text("import glob\nPAGES = glob.glob('docs/*')\n")
    subprocess.run(["git", "add", "--all"], cwd=repo, check=True)
    assert 'exclude = ["*.md"]' in gangline("init", "--dry-run").stdout


def test_names_of_files_are_printed_on_one_line(gangline, repo):
    name = "sub\nnote      all is well.py"
    (repo / name).write_text("import torch\nfor x in y: loss.backward()\n")
    subprocess.run(["git", "add", "--all"], cwd=repo, check=True)
    said = gangline("init", "--dry-run").stdout
    assert "\nnote      all is well" not in said
    assert "all is well" in said


def test_the_line_that_is_written_is_not_said_to_be_uncommitted_in_a_subfolder_either(gangline, repo):
    (repo / "sub").mkdir()
    (repo / "sub" / "train.py").write_text(SCRIPT)
    subprocess.run(["git", "-C", str(repo), "add", "--all"], check=True)
    subprocess.run(["git", "-C", str(repo), "commit", "-qm", "sub"], check=True)
    assert "not committed" not in gangline("init", str(repo / "sub")).stdout


def test_before_the_first_commit_all_files_count(gangline, tmp_path, monkeypatch):
    subprocess.run(["git", "init", "-q", str(tmp_path / "new")], check=True)
    (tmp_path / "new" / "train.py").write_text(SCRIPT)
    result = gangline("init", str(tmp_path / "new"))
    assert result.exit_code == 0, result.output
    assert "&& git add --all && git commit" in result.stdout


def test_a_folder_that_is_not_a_repository_says_what_works(gangline, tmp_path):
    result = gangline("init", str(tmp_path))
    assert isinstance(result.exception, UsageError)
    assert "git init" in str(result.exception)


def test_data_below_a_folder_that_git_ignores_are_reported_until_git_tracks_them(gangline, repo):
    (repo / "train.py").write_text(SCRIPT + "with open('data/tiny/a.txt') as text:\n    text.read()\n")
    (repo / ".gitignore").write_text("data/\n")
    assert "note      git ignores data/tiny/a.txt, which train.py opens" in gangline("init", "--dry-run").stdout
    (repo / "data" / "tiny").mkdir(parents=True)
    (repo / "data" / "tiny" / "a.txt").write_text("a")
    subprocess.run(["git", "add", "--force", "data"], cwd=repo, check=True)
    assert "git ignores" not in gangline("init", "--dry-run").stdout
