"""A hostile program of an own commit and of an approved fork, driven in every way: it finds no secret.

The driver's home with its signing key, the site's secret files, another project's run in the same store, another
process's environment, the driver's own, and for forks a service on loopback.
"""

import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from tests.attacks.canaries import Canaries
from tests.line import repositories
from tests.serve.orders.yard import Yard

from gangline.launch.sandbox import find_engine
from gangline.line.request.run_request import CommitOrigin
from gangline.line.request.trust import approve
from gangline.line.run.driver_process import PROGRAM
from gangline.serve.context.home import site_text
from gangline.serve.orders.workers import OrderService
from gangline.signing.keys import LOCAL_NAME, key_folder
from gangline.spec.config.site import KfpTable
from gangline.spec.record import STAGES
from gangline.storage.folder.store import FolderStore
from gangline.storage.site_paths import home

pytestmark = [pytest.mark.row("P5"), pytest.mark.row("P10"), pytest.mark.timeout(240), pytest.mark.long]
FORK = CommitOrigin(branch="their-idea", pull_request=7, trust="fork")
ROOT = Path(__file__).parents[2]
PROGRAM_THAT_HUNTS = repositories.PROGRAM + "\nimport helper\nif os.environ['RANK'] == '0': helper.hunt('rank')\n"
NO_ENGINE = not find_engine("auto", wide=False).hides
needs_engine = pytest.mark.skipif(NO_ENGINE, reason="needs bubblewrap: apt-get install bubblewrap")


@pytest.fixture
def outside():
    """A folder that is in no home, and that everybody may look into."""
    folder = ROOT / ".pytest_cache"
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def canaries(tmp_path, outside, monkeypatch):
    """Planted where a user, a site and other programs of this machine keep what is theirs."""
    made = Canaries(tmp_path)
    for place in (".ssh/id_ed25519", ".netrc", "config/gangline/keys/team.pem", ".aws/credentials"):
        made.plant(tmp_path / place)
    made.plant(outside / "token")
    (outside / "of-everybody").touch()
    (outside / "of-everybody").chmod(0o666)
    made.out_of_reach += [outside / "of-everybody", Path("/etc/hosts")]
    for name in ("FORGE_TOKEN", "NVIDIA_API_KEY", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, made.new())
    with made.process():
        yield made


@pytest.fixture
def closed():
    with ExitStack() as stack:
        yield stack


def plant_in(canaries: Canaries, workspace) -> None:
    """In what this workspace has itself: its key, its store, its other gangs, its git."""
    assert workspace.sealer  # makes the key
    key = key_folder(workspace.environ) / LOCAL_NAME
    canaries.paths.append(key)
    canaries.values.append(key.read_text().splitlines()[1])
    other = FolderStore(Path(workspace.store.url.removeprefix("file:")))
    other.put("runs/other/abc/other-1/gang/secret.txt", canaries.new().encode())
    canaries.paths.append(Path(other.url.removeprefix("file:")) / "runs/other/abc/other-1/gang/secret.txt")
    canaries.plant(home(workspace.repo) / "gangs" / "other-1" / "secrets" / "checkpoint-key")
    canaries.plant(workspace.repo / ".git" / "canary.conf", mode=0o644)
    canaries.out_of_reach += canaries.paths


def commit_hunter(repo: Path, canaries: Canaries) -> str:
    return repositories.commit(repo, {"answer.py": PROGRAM_THAT_HUNTS, "helper.py": canaries.hunter()})


def demand_nothing_found(canaries: Canaries, store, record, *folders: Path) -> None:
    reported = json.loads(store.get(f"{record.gang_prefix}/hunted-rank.json").data)
    assert reported["found"] == []
    assert reported["written"] == [], "out of its reach"
    assert record.run.verdict == "passed"
    assert canaries.carried_off(*folders) == []


def call(workspace, *words: str) -> str:
    """A command of gangline, typed by the user of this workspace; the last word of its answer."""
    site = workspace.repo.parent / "site.toml"
    site.write_text(site_text(workspace.site))
    command = [sys.executable, "-P", "-m", "gangline", *words, "--site", str(site)]
    environ = {**os.environ, **workspace.environ}
    done = subprocess.run(command, env=environ, cwd=workspace.repo, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split()[-1] if done.stdout else ""


@needs_engine
def test_of_an_own_commit_on_a_laptop(workspace, canaries, outside, tmp_path):
    workspace.site = replace(workspace.site, kfp=KfpTable(token=f"secret:file:{outside / 'token'}"))
    plant_in(canaries, workspace)
    commit_hunter(workspace.repo, canaries)
    call(workspace, "run", "--json")
    demand_nothing_found(canaries, workspace.store, workspace.records()[0], tmp_path, outside)


@needs_engine
def test_of_an_approved_fork_on_a_laptop(workspace, canaries, closed, outside, tmp_path):
    closed.enter_context(canaries.service())
    plant_in(canaries, workspace)
    commit_hunter(workspace.repo, canaries)
    workspace.run(origin=FORK, until="plan")
    approve(workspace.store, workspace.records()[0], who="maintainer", sealer=workspace.sealer)
    demand_nothing_found(canaries, workspace.store, workspace.run(origin=FORK), tmp_path, outside)


@needs_engine
@pytest.mark.parametrize("trust", ["own", pytest.param("fork", marks=pytest.mark.slow)])
@pytest.mark.long
def test_by_the_steps_of_jenkins(workspace, canaries, closed, outside, tmp_path, trust):
    """An agent of Jenkins keeps bound credentials next to the workspace, and names them in variables."""
    if trust == "fork":
        closed.enter_context(canaries.service())
    bound = canaries.plant(outside / "workspace@tmp" / "secretFiles" / "key.pem", mode=0o644)
    named = canaries.plant(outside / "elsewhere" / "kubeconfig", mode=0o644)
    workspace.environ |= {"WORKSPACE_TMP": str(bound.parents[1]), "DEPLOY_KEY": str(named)}
    plant_in(canaries, workspace)
    commit_hunter(workspace.repo, canaries)
    repositories.settle_inventory(workspace.repo)
    branch = "their-idea" if trust == "fork" else "main"
    run = call(workspace, "stage", "resolve", "--trust", trust, "--branch", branch, "--driver", "jenkins")
    if trust == "fork":
        call(workspace, "approve", run)
    for name in STAGES[1:]:
        call(workspace, "stage", name, "--run", run, "--driver", "jenkins")
    demand_nothing_found(canaries, workspace.store, workspace.record(run), tmp_path, outside)


@needs_engine
@pytest.mark.parametrize("trust", [pytest.param("own", marks=pytest.mark.slow), "fork"])
@pytest.mark.long
def test_under_the_service(canaries, closed, outside, tmp_path, trust):
    if trust == "fork":
        closed.enter_context(canaries.service())
    yard = Yard(tmp_path / "service", forge=True)
    closed.callback(yard.close)
    (tmp_path / "service" / "site.toml").write_text(site_text(yard.context.site))
    canaries.plant(tmp_path / "service" / "home" / "token")
    canaries.plant(tmp_path / "service" / "home" / "serve.key", mode=0o644)
    files = {"answer.py": PROGRAM_THAT_HUNTS, "helper.py": canaries.hunter()}
    sha = yard.push(branch="main" if trust == "own" else "stranger", files=files)
    service = OrderService(yard.context, program=PROGRAM)
    service.workers.start()
    closed.callback(service.close)
    if trust == "own":
        yard.wait(yard.order())
    else:
        repositories.git(yard.repo, "update-ref", "refs/pull/7/head", sha)
        yard.forge.forks.add(7)
        order = yard.order(ref="refs/pull/7/head", branch="pull-7", pull_request=7, cause="pull_request")
        parked = yard.wait(order, "parked")
        approve(yard.context.store, yard.records()[0], who="maintainer", sealer=yard.sealer)
        yard.context.database.orders.unpark(parked.run, now=0)
        yard.wait(order)
    demand_nothing_found(canaries, yard.context.store, yard.records()[0], tmp_path, outside)
