"""`gangline search report | apply | dashboard` on a search that has ended."""

import json
import subprocess
import sys
import tomllib

import pytest
from tests.report import searches
from tests.search.stored import LR, store_search

from gangline.storage.open import open_store

COMMENTED = """\
# tried by hand
[project]
name = "bytegpt"
command = ["python", "train.py"]

[optimizer.elementwise]
rule = "adamw"
lr = 3e-3    # the best of three
[train]
steps = 2
global_batch = 2
"""


def git(workspace, *arguments):
    command = ["git", "-C", str(workspace), "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def searched(workspace):
    """Store a search of a commit whose line has comments; a function of the verdict gives the best trial."""
    (workspace / "line.toml").write_text(COMMENTED, "ascii")
    git(workspace, "commit", "-aqm", "A rate")
    store = open_store(f"file:{workspace / '.gangline' / 'store'}")
    request = searches.request(
        commit=git(workspace, "rev-parse", "HEAD"), steps=2, rungs=(1,), measured_by="eval_loss",
        space={LR: searches.request().space[LR]},
    )  # fmt: skip
    return lambda verdict="BETTER": store_search(store, request, verdict=verdict)


def test_apply_writes_the_winner_and_keeps_every_other_byte(workspace, gangline, searched):
    best = searched()
    shown = gangline("search", "apply", searches.ID, "--dry-run")
    assert (workspace / "line.toml").read_text() == COMMENTED
    assert "-lr = 3e-3    # the best of three" in shown.stdout
    result = gangline("search", "apply", searches.ID)
    assert result.exit_code == 0, result.output
    text = (workspace / "line.toml").read_text()
    value = tomllib.loads(text)["optimizer"]["elementwise"]["lr"]
    assert value == best.settings[LR]
    assert text == COMMENTED.replace("3e-3", text.partition("lr = ")[2].split()[0])
    assert f"+lr = {value}" in result.stdout
    again = gangline("search", "apply", searches.ID)
    assert again.exit_code == 2
    assert "found changes on disk" in str(again.exception)


def test_apply_refuses_another_line_than_the_one_that_was_searched(workspace, gangline, searched):
    searched()
    (workspace / "line.toml").write_text(COMMENTED.replace("steps = 2", "steps = 3"))
    git(workspace, "commit", "-aqm", "More steps")
    result = gangline("search", "apply", searches.ID)
    assert result.exit_code == 2
    assert "found another one at HEAD" in str(result.exception)
    assert tomllib.loads((workspace / "line.toml").read_text())["optimizer"]["elementwise"]["lr"] == 3e-3


@pytest.mark.parametrize("verdict", ["SAME", "WORSE", "unconfirmed", ""])
def test_apply_takes_no_trial_that_is_not_shown_to_be_better_unless_it_is_named(workspace, gangline, searched, verdict):
    best = searched(verdict)
    result = gangline("search", "apply", searches.ID)
    assert result.exit_code == 60
    assert f"--trial {best.number} writes the best one" in str(result.exception)
    assert (workspace / "line.toml").read_text() == COMMENTED
    assert gangline("search", "apply", searches.ID, "--trial", "99").exit_code == 2
    assert gangline("search", "apply", searches.ID, "--trial", str(best.number)).exit_code == 0
    written = tomllib.loads((workspace / "line.toml").read_text())
    assert written["optimizer"]["elementwise"]["lr"] == best.settings[LR]


def test_report_is_a_page_a_text_or_markdown_with_the_change(workspace, gangline, searched):
    best = searched()
    written = json.loads(gangline("search", "report", searches.ID[:8], "--json").stdout)
    page = workspace / ".gangline" / "reports" / f"{searches.ID}.html"
    assert written == {"search": searches.ID, "path": str(page), "size_bytes": page.stat().st_size}
    assert f"trial {best.number} on 3 fresh seeds" in page.read_text()
    text = gangline("search", "report", searches.ID, "--format", "text", "--out", "-").stdout
    assert text.startswith(f"BETTER  trial {best.number}")
    assert "exit 30: its program raised" in text
    markdown = gangline("search", "report", searches.ID, "--format", "markdown", "--out", "-").stdout
    assert "-lr = 3e-3    # the best of three" in markdown
    assert gangline("search", "report", searches.ID, "--format", "pdf").exit_code == 2
    assert gangline("search", "report", "s-00000000-aaaa").exit_code == 2


def test_a_dashboard_that_is_not_installed_is_named(gangline, searched, monkeypatch):
    searched()
    monkeypatch.setitem(sys.modules, "optuna_dashboard", None)
    result = gangline("search", "dashboard", searches.ID)
    assert result.exit_code == 10
    assert "pip install optuna-dashboard" in str(result.exception)
