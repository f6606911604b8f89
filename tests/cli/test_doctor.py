"""`gangline doctor`: honest about this machine, calm about what is not needed."""

import json
from pathlib import Path

import pytest

from gangline.cli import machine_check
from gangline.launch.sandbox.engines import Bubblewrap, OtherUser, Unconfined


def test_on_a_machine_that_runs_these_tests_nothing_needed_is_broken(gangline):
    result = gangline("doctor", "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["ok"]
    found = {finding["name"]: finding for finding in document["findings"]}
    assert {"python", "git", "torch", "cores", "store", "sandbox", "gpu", "docker"} == set(found)
    assert "conditional writes yes" in found["store"]["text"]
    assert "gloo" in found["torch"]["text"]


def test_what_is_absent_says_what_works_without_it(gangline, monkeypatch):
    monkeypatch.setattr(machine_check, "_output", a_machine_without_gpu)
    result = gangline("doctor")
    assert result.exit_code == 0
    assert "gpu absent: runs use the cores" in result.stdout
    assert "docker absent: no images are built" in result.stdout
    assert result.stdout.endswith("nothing absent is needed by `gangline run`\n")


@pytest.mark.parametrize(
    ("engine", "ok", "said"),
    [
        (Bubblewrap("/usr/bin/bwrap", 65532), True, "as uid 65532: files, processes and environment of its own (own"),
        (OtherUser(65532), True, "uid 65532: environment and home of its own (model code sees every file that all"),
        (
            Unconfined("bubblewrap is not installed"),
            False,
            "none: bubblewrap is not installed (model code runs as this",
        ),
    ],
)
def test_what_keeps_model_code_apart_is_said_with_what_it_does_not_hide(gangline, monkeypatch, engine, ok, said):
    monkeypatch.setattr(machine_check, "_output", a_machine_without_gpu)
    monkeypatch.setattr("gangline.launch.sandbox.find_engine", lambda *_, **__: engine)
    found = next(f for f in json.loads(gangline("doctor", "--json").stdout)["findings"] if f["name"] == "sandbox")
    assert (found["ok"], found["needed"]) == (ok, False)
    assert said in found["text"]
    if not ok:
        assert "sandbox absent: apt install bubblewrap; until then" in gangline("doctor").stdout


def test_what_is_needed_and_broken_ends_with_an_exit_code_and_the_way_on(gangline, monkeypatch):
    monkeypatch.setattr(machine_check, "_output", lambda *_, **__: "")
    monkeypatch.setattr(machine_check, "gpu_files", lambda: [Path("/dev/nvidia0")])
    result = gangline("doctor")
    assert result.exit_code == 10
    assert "✗ git broken: not found; install git" in result.stdout
    assert "✗ torch broken: does not import; install gangline[train]" in result.stdout


def test_torch_is_not_needed_where_there_is_no_gpu(gangline, monkeypatch):
    look = machine_check._output
    monkeypatch.setattr(machine_check, "gpu_files", list)
    monkeypatch.setattr(
        machine_check, "_output", lambda command, **more: "" if "-c" in command else look(command, **more)
    )
    found = next(f for f in json.loads(gangline("doctor", "--json").stdout)["findings"] if f["name"] == "torch")
    assert (found["ok"], found["needed"]) == (False, False)
    assert "torch absent: install gangline[train] for GPUs and for tasks" in gangline("doctor").stdout


def test_versions_are_those_that_were_seen_or_said_not_to_be(gangline, monkeypatch):
    monkeypatch.setattr(machine_check, "_output", a_machine_without_gpu)
    found = gangline("doctor").stdout
    assert "(seen: 3.11, 3.12, 3.13)" in found
    assert "torch 2.15.0 ok (seen: 2.11, 2.13, 2.15), gloo, no nccl" in found
    monkeypatch.setattr(machine_check.platform, "python_version", lambda: "3.14.2")
    monkeypatch.setattr(
        machine_check, "_output", lambda *a, **_: a_machine_without_gpu(*a).replace("2.15.0", "2.14.1+cu130")
    )
    result = gangline("doctor")
    assert result.exit_code == 0, "what was not seen may well work"
    assert "python 3.14.2 not seen (seen: 3.11, 3.12, 3.13)" in result.stdout
    assert "torch 2.14.1+cu130 not seen (seen: 2.11, 2.13, 2.15)" in result.stdout


def test_a_torch_that_is_too_old_is_refused_by_name(gangline, monkeypatch):
    monkeypatch.setattr(machine_check, "_output", lambda *a, **_: a_machine_without_gpu(*a).replace("2.15.0", "2.10.1"))
    result = gangline("doctor")
    assert result.exit_code == 10
    assert "✗ torch broken: 2.10.1 not seen (seen: 2.11" in result.stdout
    assert "install torch 2.11 or newer" in result.stdout


def test_a_store_that_cannot_be_written_is_a_finding(gangline, workspace, monkeypatch):
    monkeypatch.setattr(machine_check, "_output", a_machine_without_gpu)
    (workspace / ".gangline").rename(workspace / "kept")
    (workspace / ".gangline").write_text("a file where the folder should be")
    result = gangline("doctor", "--json")
    store = next(f for f in json.loads(result.stdout)["findings"] if f["name"] == "store")
    assert result.exit_code == 10
    assert not store["ok"]


def a_machine_without_gpu(arguments, *_, **__):
    return {"git": "git version 2.39.5", "docker": "", "podman": ""}.get(arguments[0], FACTS)


FACTS = json.dumps({"version": "2.15.0", "gpus": [], "gloo": True, "nccl": False})
