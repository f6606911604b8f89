"""One commit of bytegpt through the whole line: on this machine, with pods, and with pods under kfp's local runner.

What drives has the account and the rights of a driver; only the sweep at the end is an administrator's.
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.cluster.driver import driving, kubeconfig
from tests.cluster.rig.wait import await_true
from tests.line.repositories import commit, git, line_with

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[3]
SHORT = (
    "train.steps=12", "train.ranks=2", "train.global_batch=8", "model.layers=2", "model.width=32", "model.context=32",
    "evaluate.seeds=2", "prove.replay_steps=4", "publish.smoke=false",
)  # fmt: skip
"""The example as it is, but for its size: what is tested is the way, not the model."""
WAYS = {
    "here": ["--target", "local"],
    "pods": ["--target", "kubernetes"],
    "pipeline": ["--target", "kubernetes", "--driver", "kfp-local"],
}
STAGES = ["resolve", "build", "plan", "submit", "train", "evaluate", "gate", "prove", "publish", "report"]
OF_THE_PLACE = ("measured", "forecast", "candidates", "reason", "digest", "key")
"""What a plan says of the machines it was made for, and digests over that."""


@pytest.fixture(scope="module")
def repo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bytegpt")
    shutil.copytree(ROOT / "examples" / "bytegpt", folder, dirs_exist_ok=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    line = line_with((folder / "line.toml").read_text("utf-8"), *SHORT)
    text = (ROOT / "src" / "gangline" / "errors.py").read_text("utf-8") * 4
    commit(folder, {"line.toml": line, "src/text.py": text}, "learn")
    return folder


@pytest.fixture(scope="module")
def image(cluster):
    """Of the code as it is now, once for all ways."""
    return cluster.train_image


@pytest.fixture(scope="module")
def account(cluster):
    """Of drivers; it is there until the last run has ended."""
    with driving(cluster):
        yield


@pytest.fixture(scope="module")
def desk(cluster, account, repo, image, tmp_path_factory):
    """Gives a way a namespace and a store of its own, so that none takes another's results."""
    made = []

    def open_desk(way):
        made.append(cluster.namespace(f"line-{way}"))
        home = tmp_path_factory.mktemp(f"home-{way}")
        site = home / "site.toml"
        site.write_text(site_of(cluster, image, made[-1]), "utf-8")
        environ = {
            **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
            "KUBECONFIG": str(kubeconfig(cluster, made[-1], home / "driver")), "STORE": cluster.credentials,
            "HOME": str(home), "GANGLINE_SITE": str(site), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore",
        }  # fmt: skip
        return Desk(repo, environ, made[-1], administrator=str(cluster.kubeconfig))

    yield open_desk
    for namespace in made:
        if namespace in cluster.namespaces:
            cluster.delete(namespace)


@dataclass(frozen=True)
class Desk:
    repo: Path
    environ: dict[str, str]
    namespace: str
    administrator: str
    """Kubeconfig of whoever may sweep."""

    def run(self, way):
        """The record of the whole line."""
        self.ask("run", str(self.repo), *WAYS[way], "--json")
        return json.loads(self.ask("show", "--repo", str(self.repo), "--json"))

    def doctor(self):
        """What is well of the cluster, by name."""
        told = json.loads(self.ask("doctor", "--cluster", "--repo", str(self.repo), "--json"))
        return {each["name"] for each in told["findings"] if each["ok"]}

    def sweep(self):
        self.ask("sweep", "--repo", str(self.repo), KUBECONFIG=self.administrator)

    def ask(self, *words, **environ):
        """What the command says; it must end well."""
        command = [sys.executable, "-m", "gangline", *words]
        done = subprocess.run(
            command, env=self.environ | environ, capture_output=True, text=True, timeout=800, check=False
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout


def site_of(cluster, image, namespace):
    return f"""
[store]
url = "{cluster.store_url}/{namespace}"
endpoint = "{cluster.endpoint}"
cluster_endpoint = "{cluster.cluster_endpoint}"
credentials = "secret:env:STORE"
[registry]
base = "{image}"
[launch]
target = "kubernetes"
namespace = "{namespace}"
launcher = "job"
[pod]
cpus = 0.6
memory_bytes = 1.2e9
shm_bytes = 64e6
disk_bytes = 1e9
"""


@pytest.fixture(scope="module")
def here(desk):
    return desk("here").run("here")


@pytest.mark.parametrize("way", ["pods", "pipeline"])
def test_the_same_commit_gives_the_same_record_wherever_it_runs(cluster, desk, here, image, way):
    mine = desk(way)
    assert {"rights", "secrets", "admission"} <= mine.doctor()
    found = mine.run(way)
    demand_same(found, here)
    assert found["inputs"]["image"] == image
    assert found["run"]["driver"]["kind"] == ("kfp" if way == "pipeline" else "run")
    assert found["gang"]["launcher"] == "kubernetes"
    assert len(found["gang"]["servers"]) == 2
    mine.sweep()
    await_true(f"the end of all gangs of {way}", lambda: cluster.leftovers(mine.namespace) == [], seconds=60)


def demand_same(found, here):
    """The record tells of the same run, with the same result."""
    assert [name for name in STAGES if found["stages"][name]["state"] != "done"] == []
    assert found["run"]["id"] == here["run"]["id"]
    assert (found["run"]["verdict"], here["run"]["verdict"]) == ("passed", "passed")
    for name in ("commit", "plan"):
        ours, theirs = (
            {key: each[name][key] for key in each[name] if key not in OF_THE_PLACE} for each in (found, here)
        )
        assert ours == theirs, name
    for name in ("line", "code", "data", "seeds", "values"):
        assert found["inputs"][name] == here["inputs"][name], name
    ours, theirs = found["metrics"]["eval_loss"], here["metrics"]["eval_loss"]
    assert ours["seeds"].keys() == theirs["seeds"].keys()
    assert ours["value"] == pytest.approx(theirs["value"], rel=1e-5)
    assert verdicts(found) == verdicts(here)


def verdicts(record):
    return {each["name"]: each["verdict"] for each in record["gates"]}
