"""The kit for a CUDA machine: what travels, within its size, in the versions of the lock."""

import json
import re
from pathlib import Path

import pytest
from tests.module_files import load_module

ROOT = Path(__file__).resolve().parents[2]
kit = load_module(ROOT / "benchmarks" / "gpu" / "kit.py", "gpu_kit")


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A kit whose wheels are of one byte."""

    def fetch(names, folder):
        folder.mkdir()
        for name in names:
            (folder / f"{name}.whl").write_bytes(b"w")

    monkeypatch.setattr(kit, "fetch", fetch)
    return kit.make(tmp_path / "kit"), tmp_path / "kit"


def test_a_kit_has_what_a_session_runs(made):
    size, folder = made
    assert size == sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    for path in (
        "src/gangline/train/rank/main.py", "benchmarks/gpu/session.py", "benchmarks/train/restart.py",
        "tests/train/test_gpu.py", "tests/train/code/model.py", "pyproject.toml",
    ):  # fmt: skip
        assert (folder / path).read_bytes() == (ROOT / path).read_bytes()
    assert not [path for path in folder.rglob("*") if path.suffix == ".pyc" or path.name == ".venv"]
    reported = json.loads((folder / "kit.json").read_text())
    assert re.fullmatch(r"[0-9a-f]{40}", reported["commit"])
    assert reported["python"] == "3.12"
    assert {"blake3.whl", "cryptography.whl", "cattrs.whl", "structlog.whl", "stamina.whl"} <= {*reported["wheels"]}


def test_source_leaves_room_for_the_wheels(made):
    """Which take 10 MiB."""
    assert made[0] <= kit.MOST_BYTES / 3


def test_all_that_is_imported_comes_along_but_torch_and_numpy():
    found = {*kit.closure(*kit.RUNTIME, *kit.TESTS)}
    assert {"attrs", "cffi", "pycparser", "tenacity", "pluggy", "iniconfig"} <= found
    assert not found & {"torch", "numpy", "triton", "uv", "typer"}
    assert not [name for name in found if name.startswith("nvidia")]


def test_every_wheel_is_in_the_lock_with_a_hash_for_that_machine(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(kit.subprocess, "run", lambda command, **_: asked.append(command))
    names = sorted(kit.closure(*kit.RUNTIME, *kit.TESTS))
    monkeypatch.setattr(Path, "unlink", lambda *_: None)
    kit.fetch(names, tmp_path / "wheels")
    text = (tmp_path / "wheels" / "asked.txt").read_text()
    assert re.findall(r"^([a-z0-9-]+)==", text, re.MULTILINE) == names
    assert text.count("--hash=sha256:") >= len(names)
    [command] = asked
    assert {"--require-hashes", "--no-deps", "--only-binary=:all:", "manylinux2014_x86_64", "3.12"} <= {*command}


def test_a_package_that_is_not_locked_is_named(tmp_path):
    with pytest.raises(SystemExit, match=r"wanted nowhere in requirements/dev\.txt"):
        kit.fetch(["nowhere"], tmp_path / "wheels")


def test_a_kit_that_is_too_large_is_an_error(monkeypatch, capsys):
    monkeypatch.setattr(kit, "make", lambda _: kit.MOST_BYTES + 1)
    assert kit.main([]) == 1
    assert "60.0 MiB of at most 60" in capsys.readouterr().out
