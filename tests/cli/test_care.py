"""Commands around models and care: what they refuse, and that their JSON reads."""

import json
import os
import time
from pathlib import Path

import pytest

from gangline.cli.commands.sweep import _said
from gangline.errors import GanglineError
from gangline.launch.protocol import SweepResult


def test_keys_lists_the_local_key_closed_to_others(gangline):
    assert gangline("keys").exit_code == 0
    for key in json.loads(gangline("keys", "--json").stdout):
        place = Path(key["place"])
        if place.exists():
            assert place.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("target", ["nothing/1", "nothing@production", "runs/no/such/run", "/no/such/folder"])
def test_verify_of_what_is_not_there_is_a_usage_error(gangline, target):
    result = gangline("verify", target)
    assert result.exit_code == 2
    assert isinstance(result.exception, GanglineError)


def test_promote_of_a_version_that_is_not_there_is_refused(gangline):
    result = gangline("promote", "bytegpt", "7", "production", "--because", "it is Friday")
    assert result.exit_code in (2, 50)
    assert "7" in str(result.exception)


def test_promote_asks_for_a_reason(gangline):
    result = gangline("promote", "bytegpt", "1", "production")
    assert result.exit_code == 2
    assert "--because" in result.stderr


def test_sweep_of_an_empty_workspace_finds_nothing(gangline, tmp_path, monkeypatch):
    monkeypatch.setenv("GANGLINE_CACHE", str(tmp_path / "cache"))
    assert gangline("sweep", "--dry-run").stdout == "no gangs here\n"
    assert json.loads(gangline("sweep", "--json").stdout) == []
    assert gangline("sweep", "--alive", str(tmp_path / "alive")).exit_code == 0
    assert (tmp_path / "alive").exists()


def test_sweep_deletes_homes_of_branches_that_no_run_used_for_long(gangline, workspace, tmp_path, monkeypatch):
    monkeypatch.setenv("GANGLINE_CACHE", str(tmp_path / "cache"))
    homes = workspace / ".gangline" / "home"
    for name in ("main-1", "topic-2"):
        (homes / name / "other" / "closed").mkdir(parents=True)
    (homes / "topic-2" / "other" / "closed").chmod(0)
    long_ago = time.time() - 40 * 86_400
    os.utime(homes / "topic-2", (long_ago, long_ago))
    assert "home topic-2  used 40 days ago  would go" in gangline("sweep", "--dry-run").stdout
    assert "home topic-2  used 40 days ago  deleted" in gangline("sweep").stdout
    assert [path.name for path in homes.iterdir()] == ["main-1"]


def test_an_unknown_drill_names_those_there_are(gangline):
    result = gangline("drill", "flood")
    assert isinstance(result.exception, GanglineError)
    assert "kill-rank" in str(result.exception)


def test_metrics_check_holds_and_lists_every_series(gangline):
    document = json.loads(gangline("metrics", "check", "--json").stdout)
    assert document["ok"]
    assert all(series["name"].startswith("gangline_") for series in document["series"])


def test_metrics_export_writes_a_file_and_reports_it(gangline, tmp_path):
    out = tmp_path / "m.txt"
    assert gangline("metrics", "export", "bytegpt-55", "--out", str(out)).stdout == f"{out}\n"
    assert out.read_text().rstrip().endswith("# EOF")


@pytest.mark.parametrize(
    ("text", "found"),
    [(None, "found: No such file or directory"), ("{{{", "found: no YAML: while parsing a flow node")],
)
def test_rules_that_cannot_be_read_are_reported_in_one_line(gangline, tmp_path, text, found):
    path = tmp_path / "rules.yml"
    if text is not None:
        path.write_text(text)
    result = gangline("metrics", "check", str(path))
    assert result.exit_code == 2
    assert f"wanted rules or boards at {path}, {found}" in str(result.exception)
    assert "\n" not in str(result.exception)


def test_a_sweep_says_what_it_leaves_and_how_it_goes():
    left = SweepResult(name="g", run="r", life="ended", deleted=False, uncollected_files=2, uncollected_bytes=3_000_000)
    said = _said(left, dry_run=False, with_outputs=False)
    assert said.startswith("stays: 2 files, 3.0 MB, that its program wrote, not collected; --with-outputs")
    assert _said(left, dry_run=True, with_outputs=True) == "would go"
