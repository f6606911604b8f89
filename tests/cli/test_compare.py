"""`gangline compare`: two runs of one commit, judged against each other; asked again, nothing is trained twice."""

import json

import pytest
from tests.cli.test_run import Toy
from tests.line import repositories
from typer.testing import CliRunner

from gangline.cli.main import app
from gangline.errors import ConfigError, GateError, UsageError

LINE = """
[project]
name = "toy"
command = ["python", "toy.py"]
distributed = false
metrics = "metrics.json"
[train]
steps = 2
global_batch = 2
[train.env]
LOSS = "1.0"
[[gate.quality]]
metric = "loss"
better = "lower"
tolerance_percent = 5
"""
PROGRAM = """
import json, os
json.dump({"loss": float(os.environ["LOSS"])}, open("metrics.json", "w"))
"""


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return Toy(tmp_path_factory.mktemp("compare"), seconds=0, line=LINE, program=PROGRAM)


def test_the_changed_run_is_judged_against_the_commit_as_it_is(toy):
    code, out, err = toy.call("compare", "--set", "train.env.LOSS='2.0'", "--fail-on-worse")
    assert code == GateError.exit_code, out + err
    assert "WORSE  loss" in out
    assert "line.toml train.env.LOSS 1.0 -> 2.0" in out
    before = json.loads(toy.call("list", "--json")[1])
    code, out, _ = toy.call("compare", "--set", "train.env.LOSS='2.0'", "--json")
    assert (code, json.loads(out)["outcome"]) == (0, "WORSE")
    assert len(before) == 2
    assert json.loads(toy.call("list", "--json")[1]) == before


def test_it_wants_a_change(toy):
    for arguments, wanted in (((), "wanted keys to change"), (("--set", "train.env.LOSS='1.0'"), "changes nothing")):
        code, _, err = toy.call("compare", *arguments)
        assert code == UsageError.exit_code
        assert wanted in err


def test_keys_are_checked_before_anything_is_trained(tmp_path):
    fresh = Toy(tmp_path, seconds=0, line=LINE, program=PROGRAM)
    for change, exit_code in (("train.env.LOSS='1.0'", UsageError.exit_code), ("a.b=1", ConfigError.exit_code)):
        code, out, err = fresh.call("compare", "--set", change)
        assert code == exit_code, out + err
    assert json.loads(fresh.call("list", "--json")[1]) == []


def test_a_run_that_read_what_has_changed_since_is_run_again_and_the_change_is_judged_alone(tmp_path, monkeypatch):
    number, site = tmp_path / "n.txt", tmp_path / "site.toml"
    number.write_text("1")
    site.write_text('[sandbox]\nmode = "off"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    program = f"import json\njson.dump({{'loss': float(open({str(number)!r}).read())}}, open('metrics.json', 'w'))\n"
    repo = repositories.make_repository(tmp_path / "repo", {"line.toml": LINE, "toy.py": program})
    change = ("--set", "train.seed=2")
    for overrides in ((), change[1:]):
        repositories.settle_inventory(repo, overrides=overrides)

    def compare():
        done = CliRunner().invoke(app, ["compare", *change, "--repo", str(repo), "--site", str(site)])
        assert done.exit_code == 0, done.output
        return done.output

    assert "is run again" not in compare()
    number.write_text("5")
    said = " ".join(compare().split())
    assert said.count(f"changed since this run read it: {number}, which the line does not declare") == 2
    assert said.count("is run again") == 2
    assert "SAME loss within the tolerance" in said
    assert "loss 5 ± 5.0 % 5 +0.0 %" in said
