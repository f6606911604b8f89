"""`gangline doctor`: honest about this machine, calm about what is not needed."""

import json

from gangline.cli import checkup


def test_on_a_machine_that_runs_these_tests_nothing_needed_is_broken(gangline):
    result = gangline("doctor", "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["ok"]
    found = {finding["name"]: finding for finding in document["findings"]}
    assert {"python", "git", "torch", "cores", "store", "gpu", "docker"} == set(found)
    assert "conditional writes yes" in found["store"]["text"]
    assert "gloo" in found["torch"]["text"]


def test_what_is_absent_says_what_works_without_it(gangline, monkeypatch):
    monkeypatch.setattr(checkup, "_output", a_machine_without_gpu)
    result = gangline("doctor")
    assert result.exit_code == 0
    assert "gpu absent: runs use the cores" in result.stdout
    assert "docker absent: no images are built" in result.stdout
    assert result.stdout.endswith("nothing absent is needed by `gangline run`\n")


def test_what_is_needed_and_broken_ends_with_an_exit_code_and_the_way_on(gangline, monkeypatch):
    monkeypatch.setattr(checkup, "_output", lambda *_, **__: "")
    result = gangline("doctor")
    assert result.exit_code == 10
    assert "✗ git broken: not found; install git" in result.stdout
    assert "✗ torch broken: does not import; install gangline[train]" in result.stdout


def test_a_store_that_cannot_be_written_is_a_finding(gangline, desk, monkeypatch):
    monkeypatch.setattr(checkup, "_output", a_machine_without_gpu)
    (desk / ".gangline").rename(desk / "kept")
    (desk / ".gangline").write_text("a file where the folder should be")
    result = gangline("doctor", "--json")
    store = next(f for f in json.loads(result.stdout)["findings"] if f["name"] == "store")
    assert result.exit_code == 10
    assert not store["ok"]


def a_machine_without_gpu(arguments, *_, **__):
    return {"git": "git version 2.39.5", "docker": "", "podman": ""}.get(arguments[0], FACTS)


FACTS = json.dumps({"version": "2.15.0", "gpus": [], "gloo": True, "nccl": False})
