"""`make tools`: what is there stays, what is missing needs Go, and says so."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tests.tools.__main__ as tools
from tests.tools.__main__ import TOOLS, Tool, tools_folder

ROOT = Path(__file__).parents[2]
OF_GO = [tool.name for tool in TOOLS if isinstance(tool, Tool)]


def run(*names, **environment):
    return subprocess.run(
        [sys.executable, "-m", "tests.tools", *names],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_go_it_says_what_to_do(tmp_path):
    ended = run(*OF_GO, PATH=str(tmp_path), GANGLINE_TOOLS=str(tmp_path / "bin"))
    assert ended.returncode == 10
    assert "Go is not on the PATH" in ended.stderr
    assert "make tools again" in ended.stderr
    assert not (tmp_path / "bin").exists()


def test_half_a_program_is_not_a_program(tmp_path):
    for name in OF_GO:
        (tmp_path / name).write_bytes(b"half")
    ended = run(*OF_GO, PATH=str(tmp_path), GANGLINE_TOOLS=str(tmp_path))
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


def test_an_environment_counts_once_it_is_whole_and_of_this_lock(tmp_path):
    lock = tmp_path / "requirements.txt"
    lock.write_text("idna==3.10 --hash=sha256:" + "0" * 64 + "\n")
    tool = tools.PythonTool("some", "1", lock)
    (tmp_path / "some").mkdir()
    assert not tool.is_there(tmp_path)
    (tmp_path / "some" / "installed").write_text(tool.digest)
    assert tool.is_there(tmp_path)
    lock.write_text("idna==3.11 --hash=sha256:" + "0" * 64 + "\n")
    assert not tool.is_there(tmp_path)


def test_the_lock_of_a_server_has_hashes_and_no_addresses():
    for tool in TOOLS:
        if isinstance(tool, tools.PythonTool):
            text = tool.lock.read_text()
            assert f"{tool.name}=={tool.version}" in text
            assert "://" not in text
            assert text.count("==") <= text.count("--hash=sha256:")


@pytest.mark.tools
def test_what_is_there_is_left_alone(tmp_path):
    if not all(tool.program(tools_folder()).is_file() for tool in TOOLS):
        pytest.skip("make tools builds the servers")
    before = [tool.program(tools_folder()).stat().st_mtime_ns for tool in TOOLS]
    ended = run()
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("is there") == len(TOOLS)
    assert [tool.program(tools_folder()).stat().st_mtime_ns for tool in TOOLS] == before
