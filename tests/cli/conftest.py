"""A model repository whose store already holds runs, and the command line called in it."""

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.report import records
from typer.testing import CliRunner, Result

from gangline.cli.main import app
from gangline.storage.open import open_store

LINE = """
[project]
name = "bytegpt"
command = ["python", "train.py"]
[train]
steps = 2
global_batch = 2
"""


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch) -> Path:
    """A repository with one commit; its store holds a base, a refused and a failed run."""
    for name in ("GANGLINE_SITE", "GANGLINE_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / "line.toml").write_text(LINE, "ascii")
    git = ["git", "-C", str(repo), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for command in (["init", "-q", "-b", "main"], ["add", "line.toml"], ["commit", "-q", "-m", "A line"]):
        subprocess.run([*git, *command], check=True, capture_output=True)
    store = open_store(f"file:{repo / '.gangline' / 'store'}")
    for day, record in enumerate((records.passed(), records.failed(), records.refused())):
        dated = replace(record, run=replace(record.run, created=f"2026-03-0{day + 1}T09:14:05Z"))
        store.put(f"{record.prefix}/record.json", dated.to_json())
    return repo


@pytest.fixture
def gangline(workspace: Path, monkeypatch) -> Callable[..., Result]:
    """Call a command in the repository; errors come back as their exit code, as `main` gives them."""
    from gangline.errors import GanglineError

    monkeypatch.chdir(workspace)

    def call(*arguments: str) -> Result:
        result = CliRunner().invoke(app, list(arguments))
        if isinstance(result.exception, GanglineError):
            result.exit_code = result.exception.exit_code
        elif result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return call
