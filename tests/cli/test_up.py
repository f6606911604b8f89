"""`gangline up` and `gangline down` as commands: what a terminal and a program are told."""

import json
import os
import subprocess
import sys

import pytest


@pytest.fixture
def call(tmp_path):
    """`gangline WORDS` for a repository on a machine where no server is installed."""
    repo = tmp_path / "repo"
    repo.mkdir()
    environ = {"PATH": str(tmp_path), "HOME": str(tmp_path), "GANGLINE_TOOLS": str(tmp_path)}

    def call(*words):
        command = [sys.executable, "-m", "gangline", *words, "--repo", str(repo)]
        return subprocess.run(command, env={**environ}, capture_output=True, text=True, check=False)

    call.repo = repo
    yield call
    call("down", "--forget")


def test_json_is_one_document_with_every_server(call):
    reported = call("up", "--json")
    rows = {row["name"]: row for row in json.loads(reported.stdout)["servers"]}
    assert list(rows) == ["s3", "prometheus", "grafana", "service"]
    assert {rows[name]["state"] for name in ("s3", "prometheus", "grafana")} == {"absent"}
    assert rows["service"]["state"] in ("started", "failed")
    assert (reported.returncode == 10) == (rows["service"]["state"] == "failed")
    assert json.loads(call("down", "--forget", "--json").stdout)["forgotten"] is True
    assert not (call.repo / ".gangline" / "up").exists()


def test_git_sees_nothing_of_it(call):
    environ = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
    subprocess.run(["git", "init", "-q", str(call.repo)], check=True, env=environ)
    call("up")
    seen = subprocess.run(
        ["git", "-C", str(call.repo), "status", "--short"], capture_output=True, text=True, check=True, env=environ
    )
    assert seen.stdout == ""
