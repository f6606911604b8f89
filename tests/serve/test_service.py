"""`gangline serve` as a person starts it: a run ordered over HTTP, followed to its end, read; another one cancelled."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from gangline.serve.context.home import ServiceHome

pytestmark = pytest.mark.long

EXAMPLE = Path(__file__).parents[2] / "examples" / "command"
PATIENCE = 150.0
SHORT = ["train.steps=4", "train.schedule.warmup_steps=1", "train.ranks=1"]


@pytest.fixture
def repo(tmp_path):
    """The example that runs any program, as a repository with one commit."""
    folder = tmp_path / "curve"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns(".gangline", "__pycache__"))
    author = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), (*author, "commit", "-qm", "a <b>first</b> commit")):
        subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)
    return folder


@contextmanager
def serving(repo):
    """A client of the service, and its process."""
    environ = os.environ | {"OMP_NUM_THREADS": "1", "GANGLINE_LOG": "info", "HOME": str(repo.parent)}
    with (repo.parent / "serve.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "gangline", "serve", "--listen", "127.0.0.1:0", "--workers", "1", "--json"],
            cwd=repo, env=environ, stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
        try:
            facts = json.loads(process.stdout.readline())
            token = (repo / ".gangline" / "serve" / "local-token").read_text().strip()
            url = facts["pages"].removesuffix("/runs")
            with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, trust_env=False) as client:
                yield client, process, facts
        finally:
            process.terminate()
            process.wait(20)
            process.stdout.close()


def waited(ask, what):
    deadline = time.monotonic() + PATIENCE
    while not (found := ask()):
        assert time.monotonic() < deadline, f"waited {PATIENCE:.0f} s for {what}"
        time.sleep(0.1)
    return found


def start(client, **wanted):
    answer = client.post("/api/v1/runs", json={"project": "curve", "branch": "main"} | wanted)
    assert answer.status_code == 202, answer.text
    return answer.json()["id"]


def run_of(client, order):
    def taken_up():
        found = client.get(f"/api/v1/orders/{order}").json()
        assert found["run"] or found["state"] in {"queued", "driving"}, found
        return found["run"]

    return waited(taken_up, f"order {order} to be taken up")


def events_of(client, run):
    """(event, data) until the stream ends."""
    with client.stream("GET", f"/api/v1/runs/{run}/events", timeout=PATIENCE) as stream:
        kind = ""
        for line in stream.iter_lines():
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield kind, json.loads(line.removeprefix("data: "))


def test_run_outlives_a_restart_of_its_service_is_followed_and_stopped_over_http(repo):
    with serving(repo) as (client, process, facts):
        assert facts["builds"] == "this machine: curve"
        link = facts["log in"].split(" ", 1)[0].split("/login", 1)[1]
        order = start(client, overrides=["train.steps=100000", "train.ranks=1"])
        run = run_of(client, order)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    with serving(repo) as (client, _, _):
        assert httpx.get(f"{client.base_url}/login{link}", trust_env=False).status_code == 401  # of the one before
        seen = []
        for kind, data in events_of(client, run):
            seen.append((kind, data))
            if kind == "progress" and data["step"] and not any(each[0] == "stopped" for each in seen):
                assert client.post(f"/api/v1/runs/{run}/cancel", json={"reason": "enough"}).status_code == 202
                seen.append(("stopped", {}))
        assert (seen[-1][0], seen[-1][1]["verdict"]) == ("end", "cancelled")
        page = client.get(f"/runs/{run}").text
        assert "a &lt;b&gt;first&lt;/b&gt; commit" in page
        assert "<b>first</b>" not in page
        assert waited(lambda: client.get(f"/api/v1/orders/{order}").json()["state"] == "done", "its order to settle")
        assert json.loads(client.get(f"/api/v1/runs/{run}/logs").text.splitlines()[-1])["rank"] == 0
    assert "gl_" not in (repo.parent / "serve.log").read_text()


@pytest.mark.slow
def test_run_is_ordered_and_read_over_http(repo):
    with serving(repo) as (client, _, _):
        run = run_of(client, start(client, overrides=SHORT))
        assert [kind for kind, _ in events_of(client, run)][-1] == "end"
        record = client.get(f"/api/v1/runs/{run}").json()
        assert (record["run"]["verdict"], record["run"]["exit_code"]) == ("refused", 60)  # four steps learn nothing
        assert waited(lambda: run in client.get("/runs").text, "the list to know the run")
        assert client.get(f"/api/v1/runs/{run}/metrics").json()["steps"] == [1, 2, 3, 4]
        assert 'gangline_runs_total{project="curve"' in client.get("/metrics").text  # --set makes no finals
        report = client.get(f"/api/v1/runs/{run}/artifacts/report")
        assert (report.status_code, report.headers["content-type"]) == (200, "text/html; charset=utf-8")


def test_second_service_of_one_home_is_refused_and_says_who_is_there(repo):
    home = ServiceHome(repo / ".gangline" / "serve")
    home.folder.mkdir(parents=True)
    with home.lock():
        done = subprocess.run(
            [sys.executable, "-m", "gangline", "serve", "--listen", "127.0.0.1:0"],
            cwd=repo, env=os.environ | {"HOME": str(repo.parent)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 20
    assert f"process {os.getpid()}" in done.stderr
