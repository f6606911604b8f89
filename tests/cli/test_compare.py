"""`gangline compare`: two runs of one commit, judged against each other; asked again, nothing is trained twice."""

import json

import pytest
from tests.cli.test_run import Toy

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


def test_a_run_that_read_what_has_changed_since_is_run_again_and_the_change_is_judged_alone(tmp_path):
    number, site = tmp_path / "data" / "n.txt", tmp_path / "site.toml"
    number.parent.mkdir()
    number.write_text("1")
    site.write_text(f"[sandbox]\nread = [{json.dumps(str(number.parent))}]\n")
    program = f"import json\njson.dump({{'loss': float(open({str(number)!r}).read())}}, open('metrics.json', 'w'))\n"
    toy = Toy(tmp_path, seconds=0, line=LINE, program=program)
    code, out, err = toy.call("run", "--site", str(site))
    assert code == 0, out + err
    number.write_text("5")
    code, out, err = toy.call("compare", "--set", "train.seed=2", "--site", str(site))
    assert code == 0, out + err
    assert f"is run again: it read {number}, which the line does not declare and which changed since" in out
    assert "SAME  loss within the tolerance" in out
    assert "+0.0 %" in out
