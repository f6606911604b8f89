"""What was written on 2026-11-24 opens: a run's records and files, its checkpoint, the state of a service.

`written.tar.gz` holds the store of a run of two ranks that passed and was published, its repository as a bundle, the
public key of its driver, and a state database with a token and two orders. It is never written again: where a format
changes, a new archive comes next to it, and this one still opens.
"""

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from gangline.checkpoint.loader import load
from gangline.serve.database.open import open_database
from gangline.storage.open import open_store

RUN, COMMIT = "sum-651fe617-nkty6w", "651fe61795b16bf405a2ade865486bcab8b2376c"
CHECKPOINTS = f"runs/sum/{COMMIT}/{RUN}/gang/checkpoints"
KEY = bytes.fromhex("f3641a2c711304943df12aec0875b00f37475cd7c7a1d7d1b140fa3a62a44d90")
"""Of the project's checkpoints; the signing key that it was derived from is gone."""


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    root = tmp_path_factory.mktemp("written")
    with tarfile.open(Path(__file__).with_name("written.tar.gz")) as archive:
        archive.extractall(root, filter="data")
    keys = root / "home" / ".config" / "gangline"
    keys.mkdir(parents=True)
    (root / "keys").rename(keys / "keys")
    subprocess.run(["git", "clone", "--quiet", "--branch=main", "repo.bundle", "repo"], cwd=root, check=True)
    (root / "site.toml").write_text(f'[store]\nurl = "file:{root / "store"}"\n[sign]\nidentities = ["58600878"]\n')
    return root


def answer(root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environ = {"HOME": str(root / "home"), "PATH": "/usr/bin:/bin", "GANGLINE_SITE": str(root / "site.toml")}
    gangline = Path(sys.executable).with_name("gangline")
    return subprocess.run(
        [gangline, *command], cwd=root / "repo", env=environ, capture_output=True, text=True, check=False
    )


def test_a_run_is_listed_and_shown(written):
    (row,) = json.loads(answer(written, "list", "--json").stdout)
    assert (row["run"], row["verdict"]) == (RUN, "passed")
    record = json.loads(answer(written, "show", RUN, "--json").stdout)
    assert record["metrics"]["eval_loss"]["value"] == pytest.approx(12.51, abs=0.01)
    assert [each["state"] for each in record["stages"].values()] == ["done"] * 10


def test_its_seal_and_files_are_verified_with_the_public_key_of_its_driver(written):
    said = answer(written, "verify", RUN).stdout.splitlines()
    assert said[0].endswith("sealed by key 58600878")
    assert {line[0] for line in said if "checkpoint" not in line and "step-" not in line} == {"✓"}
    assert len(said) > 12


def test_its_checkpoint_holds_what_was_published(written):
    model, refused = nn.ModuleDict({"layer": nn.Linear(2, 1)}), []
    store = open_store(f"file:{written / 'store'}")
    loaded = load(store, CHECKPOINTS, model, None, key=KEY, group=None, on_refused=lambda *each: refused.append(each))
    assert (loaded.step, refused) == (12, [])
    (path,) = (written / "store").rglob("model.safetensors")
    published = load_file(path)
    assert model.state_dict().keys() == published.keys()
    assert all(torch.equal(tensor, published[name]) for name, tensor in model.state_dict().items())


def test_tokens_and_orders_of_a_service_are_there(written):
    (token,) = json.loads(
        answer(written, "token", "list", "--json", "--database", str(written / "state.sqlite")).stdout
    )
    assert (token["name"], token["roles"]) == ("ci", {"sum": "runner"})
    database = open_database(str(written / "state.sqlite"))
    first = database.orders.claim(holder="test", now=1.8e9, lease_seconds=60.0)
    database.close()
    assert (first.project, first.ref, first.overrides) == ("sum", "refs/heads/main", ("train.steps=3",))
