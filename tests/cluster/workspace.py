"""A user's workspace with a cluster in reach: a small repository, an account, a site, and the command line."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.cluster.driver import kubeconfig
from tests.line.repositories import commit, git, line_with

ROOT = Path(__file__).resolve().parents[2]
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


def short_line(folder):
    """bytegpt as a repository with one commit."""
    shutil.copytree(ROOT / "examples" / "bytegpt", folder, dirs_exist_ok=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    line = line_with((folder / "line.toml").read_text("utf-8"), *SHORT)
    text = (ROOT / "src" / "gangline" / "errors.py").read_text("utf-8") * 4
    commit(folder, {"line.toml": line, "src/text.py": text}, "learn")
    return folder


class Workspace:
    """Its runs have a home and a store of their own, so that none takes another's results."""

    def __init__(self, cluster, repo, home, namespace, site):
        self.repo, self.namespace = repo, namespace
        self.administrator = str(cluster.kubeconfig)
        """Kubeconfig with the rights to sweep."""
        (home / "site.toml").write_text(site, "utf-8")
        self.environ = {
            **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
            "KUBECONFIG": str(kubeconfig(cluster, namespace, home / "driver")), "STORE": cluster.credentials,
            "HOME": str(home), "GANGLINE_SITE": str(home / "site.toml"), "OMP_NUM_THREADS": "1",
            "PYTHONWARNINGS": "ignore",
        }  # fmt: skip

    def run(self, way):
        """The record of the whole line."""
        self.ask("run", str(self.repo), *WAYS[way], "--json")
        return json.loads(self.ask("show", "--repo", str(self.repo), "--json"))

    def doctor(self):
        """What is well of the cluster, by name."""
        found = json.loads(self.ask("doctor", "--cluster", "--repo", str(self.repo), "--json"))
        return {each["name"] for each in found["findings"] if each["ok"]}

    def sweep(self):
        self.ask("sweep", "--repo", str(self.repo), KUBECONFIG=self.administrator)

    def ask(self, *words, code=0, **environ):
        """What the command says; it must end with `code`."""
        command = [sys.executable, "-m", "gangline", *words]
        done = subprocess.run(
            command, env=self.environ | environ, capture_output=True, text=True, timeout=1500, check=False
        )
        assert done.returncode == code, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout


def site_of(cluster, image, namespace, *, launch='launcher = "job"', cpus=0.6):
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
{launch}
[pod]
cpus = {cpus}
memory_bytes = 1.2e9
shm_bytes = 64e6
disk_bytes = 1e9
"""
