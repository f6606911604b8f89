"""A hostile task in pods of a real cluster: the look at the model, its memory run and the smoke test find no secret.

The driver is one without a sandbox, as in a pod of its own: its keys, kubeconfig and the site's credential lie in its
home and environment. The task searches files, variables, processes and the network.
"""

import json
import os
from dataclasses import replace

import pytest
import torch
import yaml
from safetensors.torch import save_file
from tests.attacks.canaries import Canaries, hunts
from tests.attacks.test_model_code_once import TASK, Overheard
from tests.cluster.cluster import open_cluster
from tests.cluster.driver import driving, kubeconfig
from tests.line.repositories import commit
from tests.line.stages.test_model_inspection import model_of, task_repository
from tests.planner.cases import SITE, cpu, line

from gangline.launch.sandbox.engines import Unconfined
from gangline.launch.sandbox.module_runner import ModuleJob
from gangline.line.gangs import sandbox
from gangline.line.gangs.runners import CodeOwner, open_runner
from gangline.line.stages.memory_run import run_memory_check
from gangline.line.stages.model_inspection import inspect_model
from gangline.planner.choice import choose_plan
from gangline.planner.plans import make_plan
from gangline.signing.keys import LOCAL_NAME, key_folder, signing_key
from gangline.spec.config.site import LaunchTable, PodTable, RegistryTable, Site, StoreTable
from gangline.spec.data_source import DataSource
from gangline.spec.plan import ProgramSpec
from gangline.spec.profile import ModelProfile
from gangline.storage import site_paths

pytestmark = [pytest.mark.cluster, pytest.mark.row("P5"), pytest.mark.row("P10"), pytest.mark.timeout(600)]
SEARCH = r"""
def search():
    import json, os, re, socket, sys, urllib.error, urllib.request
    signs = re.compile(b"canary-[0-9a-f]{24}|X-Amz-" + b"Signature|eyJhb" + b"Gci|PRIVATE" + b" KEY")
    found, answers = {}, {}
    for top in ("/etc", "/home", "/root", "/run", "/var/run", "/var/lib", "/tmp", "/dev/shm", "/gangline", "/proc/1"):
        for folder, below, names in os.walk(top):
            below[:] = [each for each in below if each not in ("task", "code")]
            for name in names:
                path = os.path.join(folder, name)
                try:
                    if os.path.isfile(path) and (match := signs.search(open(path, "rb").read(1 << 20))):
                        found[path] = match[0].decode()
                except OSError:
                    pass
    tokens = [each for each in ("/var/run/secrets/kubernetes.io", "/var/run/gangline") if os.path.lexists(each)]
    api = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
    import ssl
    blind = ssl.create_default_context()
    blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
    asked = {"secrets": f"{api}/api/v1/secrets", "pods": f"{api}/api/v1/pods", "metadata": "http://169.254.169.254/",
             "others": STORE + "/?list-type=2", "record": STORE + "/record.json"}
    for what, url in asked.items():
        try:
            answers[what] = urllib.request.urlopen(url, timeout=3, context=blind).status
        except urllib.error.HTTPError as error:
            answers[what] = error.code
        except OSError as error:
            answers[what] = "no answer"
    word = {"searched": True, "uid": os.getuid(), "found": found, "tokens": tokens, "answers": answers,
            "environ": dict(os.environ)}
    print(json.dumps(word), file=sys.stderr, flush=True)
"""


@pytest.fixture(scope="module")
def cluster():
    yield from open_cluster()


@pytest.fixture(scope="module")
def home(cluster, tmp_path_factory):
    """Of a driver with the rights of the manifests; its kubeconfig lies in it."""
    folder = tmp_path_factory.mktemp("driver")
    with driving(cluster):
        namespace = cluster.namespace("model-code")
        kubeconfig(cluster, namespace, folder / "kubeconfig")
        yield folder, namespace
        cluster.delete(namespace)


@pytest.fixture
def workspace(cluster, home, monkeypatch):
    """(repository, site, environment, canaries) of a driver that has no sandbox."""
    folder, namespace = home
    monkeypatch.setattr(sandbox, "find_engine", lambda *_, **__: Unconfined("this is a pod"))
    repo = task_repository(
        folder / f"repo-{os.urandom(3).hex()}", TASK.replace('hunt("import")', 'hunt("import"); helper.search()')
    )
    canaries = Canaries(folder)
    environ = {
        "HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "config"), "KUBECONFIG": str(folder / "kubeconfig"),
        "STORE": cluster.credentials, "PATH": os.environ["PATH"],
    }  # fmt: skip
    signing_key(Site(), environ)
    key = key_folder(environ) / LOCAL_NAME
    token = yaml.safe_load((folder / "kubeconfig").read_text())["users"][0]["user"]["token"]
    canaries.paths += [key, folder / "kubeconfig"]
    canaries.values += [key.read_text().splitlines()[1], token, cluster.credentials.partition(":")[2]]
    canaries.plant(folder / ".ssh" / f"id-{repo.name}")
    monkeypatch.setenv("FORGE_TOKEN", canaries.new())
    site = Site(
        store=StoreTable(
            url=f"{cluster.store_url}/{namespace}", endpoint=cluster.endpoint,
            cluster_endpoint=cluster.cluster_endpoint, credentials="secret:env:STORE",
        ),
        registry=RegistryTable(base=cluster.train_image),
        launch=LaunchTable(target="kubernetes", namespace=namespace, launcher="job"),
        pod=PodTable(
            cpus=0.6, memory_bytes=1.2e9, shm_bytes=64e6, disk_bytes=1e9,
            pull="Never" if cluster.is_own else "IfNotPresent",
        ),
    )  # fmt: skip
    bucket = f"{cluster.cluster_endpoint}/{cluster.store_url.removeprefix('s3://')}"
    commit(repo, {"helper.py": "\n".join([canaries.hunter(), f"STORE = {bucket!r}", SEARCH])})
    return repo, site, environ, canaries


def runner_for(workspace, trust):
    repo, site, environ, _ = workspace
    store = site_paths.open_site_store(repo, site, environ)
    subject = CodeOwner(
        run="demo-0a1b2c3d-abcdef", project="demo", commit="0a1b2c3d" * 5, trust=trust, image=site.registry.base
    )
    return Overheard(open_runner(subject, repo, site=site, environ=environ, store=store)), store


def demand_nothing_found(canaries, said):
    """It ran, as another user, and saw its own things alone."""
    assert {each["hunted"] for each in hunts(said)} >= {"import", "build", "loss"}
    assert [each for each in hunts(said) if each["found"] or each["written"]] == []
    words = [json.loads(each) for each in said.splitlines() if each.startswith('{"searched"')]
    assert words, "the search ran"
    for word in words:
        assert (word["uid"], word["found"], word["tokens"]) == (65532, {}, [])
        assert {what for what, answer in word["answers"].items() if answer not in (401, 403, "no answer")} == set()
        assert not [name for name in word["environ"] if "TOKEN" in name or "CREDENTIAL" in name or "KEY" in name]
    assert [each for each in canaries.values if each in said] == []


@pytest.mark.parametrize("trust", ["own", "fork"])
def test_hostile_task_finds_no_secret(cluster, workspace, home, trust, tmp_path):
    repo, _, _, canaries = workspace
    model = replace(model_of(repo), trust=trust)

    runner, store = runner_for(workspace, trust)
    assert inspect_model(model, home=repo / ".gangline", runner=runner).profile.blocks == 0
    demand_nothing_found(canaries, runner.said)

    inventory = cpu(2, 8e9)
    choice = choose_plan(line(), SITE, inventory, ModelProfile(parameters=64 * 64))
    plan = make_plan(line(), choice, run="demo-1", run_prefix="runs/demo", data=DataSource())
    plan, (runner, _) = replace(plan, program=ProgramSpec(task="model:Tiny")), runner_for(workspace, trust)
    weighed = run_memory_check(
        model, choice, plan, site=SITE, inventory=inventory, always=True, notify=print, runner=runner
    )
    assert weighed.choice.forecast.memory_origin == "memory run", weighed.notes
    demand_nothing_found(canaries, runner.said)

    built = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 8))
    folder = tmp_path / "model"
    folder.mkdir()
    save_file(built.state_dict(), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"task": "model:Tiny", "model": {}}))
    runner, _ = runner_for(workspace, trust)
    done = runner.run(
        ModuleJob(
            module="gangline.train.roles.smoke_test", arguments=("../model", "--code", ".", "--options",
            "../options.json"),
            code=model.code, files={"model": folder, "options.json": b"{}"}, seconds=100, trust=trust,
        )
    )  # fmt: skip
    assert (done.exit_code, json.loads(done.stdout.splitlines()[-1])["samples"]) == (0, 2), done.stderr[-2000:]
    demand_nothing_found(canaries, runner.said)

    assert cluster.leftovers(home[1]) == []
    assert list(store.list("once/")) == []
