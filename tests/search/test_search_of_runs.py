"""A search of real runs: killed in the middle, resumed by the same command, nothing trained twice."""

import json
import os
import subprocess
import sys

import pytest
from tests.line.repositories import commit, make_repository

from gangline.line.record.runs import list_runs
from gangline.search.searches import list_searches, read_search
from gangline.storage.folder.store import FolderStore

LINE = """\
[project]
name = "cheap"
command = ["python", "answer.py", "{model.rate}"]
[model]
rate = 0.5
[train]
steps = 4
global_batch = 2
ranks = 1
[search]
metric = "loss"
trials = 4
parallel = 2
pruner = "none"
confirm_seeds = 0
[search.space]
"model.rate" = { low = 0.1, high = 1.0 }
"""
PROGRAM = """\
import json, os, pathlib, sys, time
rate = float(sys.argv[1])
time.sleep(1)
rows = [{"seed": 1, "job": 0, "step": n, "loss": abs(rate - 0.3) + 1 / n, "learning_rate": 0.1, "gradient_norm": 1.0,
         "tokens_per_second": 100.0, "step_seconds": 0.01} for n in range(1, 5)]
out = pathlib.Path(os.environ["GANGLINE_OUT"])
(out / "metrics.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
(out / "result.json").write_text(json.dumps({"role": "train", "final_step": 4}))
"""


@pytest.fixture
def repo(tmp_path):
    return make_repository(tmp_path / "repo", {"line.toml": LINE, "answer.py": PROGRAM})


def search(repo, *arguments):
    command = [sys.executable, "-m", "gangline", "search", "--yes", "--json", *arguments]
    environ = {**os.environ, "HOME": str(repo.parent), "XDG_CONFIG_HOME": str(repo.parent / "config")}
    return subprocess.Popen(command, cwd=repo, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_search_that_is_killed_goes_on_with_its_runs_and_trains_none_twice(repo):
    first = search(repo)
    for text in first.stdout:
        event = json.loads(text)
        if event["event"] == "trial" and event["trial"]["state"] == "ended":
            break
    first.kill()
    first.communicate()
    second = search(repo)
    out, err = second.communicate()
    assert second.returncode == 60, err  # nobody confirmed it
    store = FolderStore(repo / ".gangline" / "store")
    (request,) = list_searches(store, "cheap")
    view = read_search(store, "cheap", request.id)
    assert [each.state for each in view.trials] == ["ended"] * 4
    assert [each.differs for each in view.trials] == [""] * 4
    assert view.ending == "trials"
    records = {record.run.id: record for record in list_runs(store)}
    assert {each.run for each in view.trials} == set(records)
    assert all(record.run.attempt == 1 for record in records.values())
    assert all((record.gang.generations, record.gang.restarts) == (1, 0) for record in records.values())
    gangs = {each.name for each in (repo / ".gangline" / "gangs").iterdir() if not each.name.startswith(".")}
    assert gangs == set(records)
    assert view.spent_hours == pytest.approx(sum(each.ledger.allocated_seconds for each in records.values()) / 3600)
    last = json.loads(out.splitlines()[-1])
    assert last["search"]["best"] == view.best
    commit(repo, {"notes.md": "changed"})
    (repo / "answer.py").write_text("changed")
    refused = search(repo)
    assert "found changes in the tree" in refused.communicate()[1]
    assert refused.returncode == 10
