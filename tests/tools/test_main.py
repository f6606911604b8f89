"""`make tools`: what is there stays, what is missing needs Go, and says so."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tests.tools.__main__ as tools
from tests.tools.__main__ import TOOLS, tools_folder

ROOT = Path(__file__).parents[2]


def run(tmp_path, **environment):
    return subprocess.run(
        [sys.executable, "-m", "tests.tools"],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_go_it_says_what_to_do(tmp_path):
    ended = run(tmp_path, PATH=str(tmp_path), GANGLINE_TOOLS=str(tmp_path / "bin"))
    assert ended.returncode == 10
    assert "Go is not on the PATH" in ended.stderr
    assert "make tools again" in ended.stderr
    assert not (tmp_path / "bin").exists()


def test_half_a_program_is_not_a_program(tmp_path):
    for tool in TOOLS:
        (tmp_path / tool.name).write_bytes(b"half")
    ended = run(tmp_path, PATH=str(tmp_path), GANGLINE_TOOLS=str(tmp_path))
    assert ended.returncode == 10


def test_only_the_tools_that_are_named_are_built(tmp_path, monkeypatch):
    monkeypatch.setenv("GANGLINE_TOOLS", str(tmp_path))
    monkeypatch.setattr(tools.shutil, "which", lambda name: "go")
    built = []
    monkeypatch.setattr(tools, "build", lambda tool, folder: built.append(tool.name) or 0)
    assert tools.main("minio") == 0
    assert built == ["minio"]
    tools.main()
    assert built == ["minio", *(tool.name for tool in TOOLS)]


@pytest.mark.tools
def test_what_is_there_is_left_alone(tmp_path):
    if not all((tools_folder() / tool.name).is_file() for tool in TOOLS):
        pytest.skip("make tools builds the servers")
    before = [(tools_folder() / tool.name).stat().st_mtime_ns for tool in TOOLS]
    ended = run(tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("is there") == len(TOOLS)
    assert [(tools_folder() / tool.name).stat().st_mtime_ns for tool in TOOLS] == before
