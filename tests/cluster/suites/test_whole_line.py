"""One commit of bytegpt through the whole line: on this machine, with pods, and with pods under kfp's local runner."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.line.repositories import commit, git

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[3]
SHORT = {
    "train.steps": "12", "train.ranks": "2", "train.global_batch": "8", "model.layers": "2", "model.width": "32",
    "model.context": "32", "prove.replay_steps": "4", "publish.smoke": "false",
}  # fmt: skip
"""The example as it is, but for its size: what is tested is the way, not the model."""
WAYS = {
    "here": [],
    "pods": ["--target", "kubernetes"],
    "pipeline": ["--target", "kubernetes", "--driver", "kfp-local"],
}
STAGES = ["resolve", "build", "plan", "submit", "train", "evaluate", "gate", "prove", "publish", "report"]


@pytest.fixture(scope="module")
def repo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bytegpt")
    shutil.copytree(ROOT / "examples" / "bytegpt", folder, dirs_exist_ok=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder, {"src/text.py": (ROOT / "src" / "gangline" / "errors.py").read_text("utf-8") * 4}, "learn")
    return folder


@pytest.fixture(scope="module")
def drive(cluster, repo, tmp_path_factory):
    """Runs a way through the line; every way has a store prefix of its own, so that none takes another's results."""
    made = []

    def run(way, *more):
        namespace = cluster.namespace(f"line-{way}")
        made.append(namespace)
        home = tmp_path_factory.mktemp(f"home-{way}")
        site = home / "site.toml"
        site.write_text(site_of(cluster, namespace, f"line-{way}-{namespace[-6:]}"), "utf-8")
        environ = {
            **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
            "HOME": str(home), "KUBECONFIG": str(cluster.kubeconfig), "STORE": cluster.credentials,
            "GANGLINE_SITE": str(site), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore",
        }  # fmt: skip
        settings = [word for key, value in SHORT.items() for word in ("--set", f"{key}={value}")]
        done = subprocess.run(
            [sys.executable, "-m", "gangline", "run", str(repo), *WAYS[way], *settings, *more, "--json"],
            env=environ, capture_output=True, text=True, timeout=800, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        shown = subprocess.run(
            [sys.executable, "-m", "gangline", "show", "--repo", str(repo), "--json"],
            env=environ, capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        return json.loads(shown.stdout), namespace

    yield run
    for namespace in made:
        if namespace in cluster.namespaces:
            cluster.delete(namespace)


def site_of(cluster, namespace, prefix):
    return f"""
[store]
url = "{cluster.store_url}/{prefix}"
endpoint = "{cluster.endpoint}"
cluster_endpoint = "{cluster.cluster_endpoint}"
credentials = "secret:env:STORE"
[registry]
base = "{cluster.train_image}"
[launch]
namespace = "{namespace}"
launcher = "job"
[pod]
cpus = 0.4
memory_bytes = 1.2e9
shm_bytes = 64e6
disk_bytes = 1e9
"""


@pytest.fixture(scope="module")
def here(drive):
    return drive("here")[0]


@pytest.mark.parametrize("way", ["pods", "pipeline"])
def test_the_same_commit_gives_the_same_record_wherever_it_runs(cluster, drive, here, way):
    found, namespace = drive(way)
    assert [name for name in STAGES if found["stages"][name]["state"] != "done"] == []
    assert found["run"]["id"] == here["run"]["id"]
    assert (found["run"]["verdict"], here["run"]["verdict"]) == ("passed", "passed")
    for name in ("commit", "plan"):
        ours, theirs = dict(found[name]), dict(here[name])
        for own in ("measured", "forecast", "candidates", "reason"):
            ours.pop(own, None), theirs.pop(own, None)
        assert ours == theirs, name
    for name in ("line", "code", "data", "seeds", "values"):
        assert found["inputs"][name] == here["inputs"][name], name
    assert found["inputs"]["image"] == cluster.train_image
    ours, theirs = found["metrics"]["eval_loss"], here["metrics"]["eval_loss"]
    assert ours["seeds"].keys() == theirs["seeds"].keys()
    assert ours["value"] == pytest.approx(theirs["value"], rel=1e-5)
    assert {each["name"]: each["verdict"] for each in found["gates"]} == {
        each["name"]: each["verdict"] for each in here["gates"]
    }
    assert found["gang"]["launcher"] == "kubernetes"
    assert len(found["gang"]["servers"]) == 2
    assert [each for each in cluster.leftovers(namespace) if each.startswith(("pod/", "job"))] == []
