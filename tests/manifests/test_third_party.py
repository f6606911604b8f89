"""Definitions of other projects: fetched only as they were pinned."""

import hashlib
import json
import re
import subprocess
import sys
import tomllib

import pytest
from tests.manifests.rendered import ROOT

FETCH = ROOT / "third-party/fetch.py"
PINS = tomllib.loads((ROOT / "third-party/pins.toml").read_text())["definition"]


def test_every_pin_names_a_version_and_a_digest():
    assert PINS
    for pin in PINS:
        assert re.fullmatch(r"v\d+\.\d+\.\d+", pin["version"])
        assert re.fullmatch(r"[0-9a-f]{64}", pin["sha256"])


@pytest.fixture
def module(tmp_path):
    """Stands in for `go`: one folder as every module, whatever is asked for."""
    folder = tmp_path / "module"
    program = tmp_path / "bin/go"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nprint({json.dumps(json.dumps({'Dir': str(folder)}))})\n")
    program.chmod(0o755)
    (tmp_path / "fetch.py").write_text(FETCH.read_text())
    (folder / "crds").mkdir(parents=True)
    (folder / "crds/kind.yaml").write_text("kind: CustomResourceDefinition\n")
    return tmp_path


def fetch(folder, digest):
    pin = {"project": "p", "module": "example.com/p", "version": "v1.0.0", "file": "crds/kind.yaml", "sha256": digest}
    lines = "\n".join(f'{name} = "{value}"' for name, value in pin.items())
    (folder / "pins.toml").write_text(f"[[definition]]\n{lines}\n")
    command = [sys.executable, str(folder / "fetch.py"), str(folder / "out")]
    path = f"{folder / 'bin'}:/usr/bin:/bin"
    return subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": path})


def test_pinned_definition_is_written(module):
    done = fetch(module, hashlib.sha256(b"kind: CustomResourceDefinition\n").hexdigest())
    assert done.returncode == 0, done.stderr
    assert (module / "out/p-v1.0.0/kind.yaml").read_text() == "kind: CustomResourceDefinition\n"


def test_definition_that_is_not_the_pinned_one_is_not_written(module):
    done = fetch(module, "0" * 64)
    assert done.returncode == 1
    assert "wanted sha256 000" in done.stderr
    assert not (module / "out").exists()
