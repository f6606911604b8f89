"""A population of real runs: every member begins where its parent ended, with the keys that were drawn for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.line import repositories

from gangline.checkpoint.format.folder import CheckpointFolder
from gangline.line.gangs import launchers
from gangline.line.record.runs import find_run
from gangline.search.population import lineage
from gangline.search.searches import list_searches, read_search
from gangline.spec.config.site import Site
from gangline.storage.site_paths import open_site_store

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
LR, DECAY = "optimizer.elementwise.lr", "optimizer.elementwise.weight_decay"
LINE = """
[project]
name = "digits"
task = "model:Digits"
[model]
width = 8
[optimizer.elementwise]
rule = "adamw"
lr = 3e-3
weight_decay = 0.1
[train]
steps = 6
global_batch = 16
ranks = 1
[prove]
plan = "off"
[search]
metric = "accuracy"
better = "higher"
pruner = "population"
population = 4
trials = 8
confirm_seeds = 0
[search.space]
"optimizer.elementwise.lr" = { low = 1e-4, high = 1e-1, log = true }
"optimizer.elementwise.weight_decay" = { low = 0.01, high = 0.5 }
"""


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_every_lineage_leads_to_a_checkpoint_that_verifies(tmp_path):
    repo = repositories.make_repository(
        tmp_path / "repo", {"line.toml": LINE, "model.py": (DIGITS / "model.py").read_text()}
    )
    environ = os.environ | {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "gangline", "search", "--yes", "--json", "--repo", str(repo)]
    ended = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert ended.returncode == 60, ended.stderr  # nobody confirmed it
    require_lineages(open_site_store(repo, Site(), environ), environ)


def require_lineages(store, environ):
    """Every member begins at its parent's verified checkpoint, and has its own keys and a round's steps."""
    [request] = list_searches(store, "digits")
    assert (request.rungs, request.steps) == ((3,), 6)
    view = read_search(store, "digits", request.id)
    assert [each.state for each in view.trials] == ["ended"] * 8
    key = launchers.checkpoint_key(Site(), environ, "digits")
    replaced = 0
    for trial in view.trials:
        record, number = find_run(store, trial.run), trial.number
        first, *_, last = *(line := lineage(view.trials, number)), number
        assert first < 4
        assert [each // 4 for each in line] == list(range(number // 4 + 1))
        end = 3 * (number // 4 + 1)
        folder = CheckpointFolder.open(store, record.stages["train"].outputs["checkpoint"], key)
        assert folder.manifest.step == end
        assert folder.index().tensors
        numbers = folder.state().optimizer
        assert {value for path, value in numbers.items() if path.endswith(".weight_decay")} == {trial.settings[DECAY]}
        if trial.parent is None:
            assert record.training.started_from is None
            continue
        parent = find_run(store, view.trials[trial.parent].run)
        assert record.training.started_from.checkpoint == parent.stages["train"].outputs["checkpoint"]
        assert record.training.samples.trained == 3 * 16
        replaced += trial.settings != view.trials[trial.parent].settings
        assert last == number
    assert replaced == 1  # of four
