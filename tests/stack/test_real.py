"""The stack with its real servers: up, a line against its site, the loss asked of Prometheus, and nothing left."""

import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from tests.contracts.storage.servers import tool
from tests.monitoring.prometheus import eventually, program

from gangline.spec.config.load import load_site
from gangline.stack import lifecycle
from gangline.stack.home import StackHome
from gangline.stack.lifecycle import http_status
from gangline.stack.servers import SCRAPE_SECONDS
from gangline.storage.open import open_store

pytestmark = pytest.mark.tools
EXAMPLE = Path(__file__).parents[2] / "examples" / "command"


@pytest.fixture
def gangline(tmp_path):
    """`gangline WORDS` in a repository with one commit; the stack is taken down at the end."""
    program("prometheus")
    tool("versitygw")
    repo = tmp_path / "curve"
    shutil.copytree(EXAMPLE, repo, ignore=shutil.ignore_patterns("__pycache__", ".gangline"))
    outlive_scrapes(repo / "train.py")
    for words in (
        ["init", "-q", "-b", "main"],
        ["add", "-A"],
        ["-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "curve"],
    ):
        subprocess.run(["git", "-C", str(repo), *words], check=True)

    def call(*words, **environ):
        command = [sys.executable, "-m", "gangline", *words]
        own = {**os.environ, "OMP_NUM_THREADS": "1", **environ}
        return subprocess.run(command, cwd=repo, env=own, capture_output=True, text=True, check=False)

    call.repo = repo
    yield call
    call("down", "--forget")


def test_a_run_goes_to_the_store_and_its_series_to_prometheus(gangline):
    reported = json.loads(gangline("up", "--json").stdout)
    rows = {row["name"]: row for row in reported["servers"]}
    assert (rows["s3"]["kind"], rows["s3"]["state"], rows["prometheus"]["state"]) == ("versitygw", "started", "started")
    running = StackHome.of(gangline.repo).read().running

    done = gangline("run", "--until", "evaluate", "--json", GANGLINE_SITE=reported["site"])
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    run = json.loads(done.stdout.splitlines()[0])["run"]

    site = load_site(Path(reported["site"]), environ={})
    credentials = Path(str(site.store.credentials).removeprefix("secret:file:")).read_text()
    store = open_store(site.store.url, endpoint=site.store.endpoint, credentials=credentials)
    assert any(run in entry.key for entry in store.list("runs/"))
    losses: list[float] = []
    assert eventually(lambda: bool(losses.extend(asked(rows["prometheus"]["url"], run)) or losses))
    assert 0 < losses[0] < 5

    gangline("down")
    assert not any(lifecycle.is_running(each) for each in running.values())
    assert http_status(rows["s3"]["url"]) is None
    with socket.create_server(("127.0.0.1", int(rows["prometheus"]["url"].rpartition(":")[2]))):
        assert not StackHome.of(gangline.repo).read().running


def outlive_scrapes(program):
    """Let the gang of `program` live longer than it takes to be found and scraped, however fast the machine is."""
    step = "            session.step(optimizer)\n"
    text = program.read_text()
    assert text.count(step) == 1
    pause = 5 * SCRAPE_SECONDS / 200
    program.write_text("import time\n" + text.replace(step, f"{step}            time.sleep({pause})\n"))


def asked(prometheus, run):
    """The last loss that Prometheus knows of a run; nothing while it knows none."""
    text = urllib.parse.urlencode({"query": f'max(last_over_time(gangline_train_loss{{run="{run}"}}[10m]))'})
    with urllib.request.urlopen(f"{prometheus}/api/v1/query?{text}", timeout=10) as answer:
        return [float(row["value"][1]) for row in json.load(answer)["data"]["result"]]
