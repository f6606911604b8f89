"""A1: a repository that calls itself another project gets nothing of it, whoever drives: people, Jenkins, pipelines."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest
from tests.kfp.conftest import key_file
from tests.line import repositories
from tests.line.conftest import Workspace
from tests.line.repositories import git
from tests.registry.passed_run import copy_of, template

from gangline.errors import IntegrityError
from gangline.git.repository import Repository
from gangline.kfp import task_config
from gangline.kfp.run_stage import run_stage
from gangline.kfp.task_config import TaskConfig, site_for_tasks
from gangline.kfp.task_repository import store_history
from gangline.line.record.store import read_record
from gangline.line.results.verification import verify
from gangline.line.stages import publish as publish_stage
from gangline.registry.project_owner import ProjectClaim, claim_key
from gangline.registry.promote import promote
from gangline.registry.versions import read_alias
from gangline.serve.context.home import site_text
from gangline.spec.config.site import Site, StoreTable
from gangline.storage.objects.protocol import list_all

pytestmark = pytest.mark.row("A1")


@pytest.fixture
def site(tmp_path):
    return Site(store=StoreTable(url=f"file:{tmp_path / 'store'}"))


@pytest.fixture
def beta(tmp_path, site):
    """A project with a run that is planned; its repository has a bare `origin`."""
    return repository(tmp_path, site, "beta")


@pytest.fixture
def alpha(tmp_path, site, beta):
    """Another repository, whose default branch calls itself beta, after beta's run was made; it has beta's commits."""
    beta.record = beta.run(until="build")
    made = repository(tmp_path, site, "alpha")
    git(made.repo, "fetch", "--quiet", str(beta.repo))
    return made


def repository(tmp_path, site, name):
    repo = repositories.make_repository(tmp_path / name)
    repositories.commit(repo, {"line.toml": repositories.LINE.replace('"cheap"', '"beta"'), "name": name})
    git(tmp_path, "clone", "--quiet", "--bare", str(repo), f"{name}.git")
    git(tmp_path / f"{name}.git", "remote", "remove", "origin")
    git(repo, "remote", "add", "origin", str(tmp_path / f"{name}.git"))
    git(repo, "fetch", "--quiet")
    return Workspace(repo, site, {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")})


def command(workspace, tmp_path, *words):
    """A command of the terminal in a repository: exit code, and what it said."""
    (tmp_path / "site.toml").write_text(site_text(workspace.site))
    done = subprocess.run(
        [sys.executable, "-m", "gangline", *words, "--site", str(tmp_path / "site.toml")], cwd=workspace.repo,
        env={"PATH": os.environ["PATH"], **workspace.environ}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def keys(workspace):
    return sorted((entry.key, entry.size_bytes) for entry in list_all(workspace.store, ""))


@pytest.mark.parametrize(
    "words",
    [
        ("run",),
        ("run", "--commit", "HEAD", "--branch", "idea", "--trust", "fork"),
        ("plan",),
        ("stage", "resolve", "--commit", "HEAD", "--driver", "jenkins", "--branch", "main"),
    ],
    ids=["run", "fork", "plan", "jenkins"],
)
def test_a_command_in_another_repository_makes_no_record_and_reads_nothing(alpha, beta, tmp_path, words):
    before = keys(beta)
    code, said = command(alpha, tmp_path, *words)
    assert code == 10, said
    assert f"found 'beta', which belongs to {tmp_path}/beta.git in " in said
    assert keys(beta) == before


@pytest.mark.parametrize("name", ["plan", "train", "publish", "report"])
def test_a_stage_of_anothers_run_is_not_driven_from_here(alpha, beta, tmp_path, name):
    before = keys(beta)
    code, said = command(alpha, tmp_path, "stage", name, "--run", beta.record.run.id, "--driver", "jenkins")
    assert code == 50, said
    assert f"wanted a clone of {tmp_path}/beta.git, which owns the project beta, found one of {tmp_path}/al" in said
    assert keys(beta) == before


@pytest.mark.parametrize("where", ["machine", "pod"])
def test_a_task_of_a_pipeline_drives_no_run_of_another_repository(alpha, beta, tmp_path, monkeypatch, capsys, where):
    mount = tmp_path / "mount" / "gangline-line"
    mount.mkdir(parents=True)
    (mount / "sign-key").write_bytes(key_file(tmp_path).read_bytes())
    monkeypatch.setattr(task_config, "MOUNT", tmp_path / "mount")
    here = Repository.at(alpha.repo)
    history = store_history(here, here.commit(), alpha.store)
    pod = TaskConfig(site=site_for_tasks(alpha.site), history=history)
    config = pod if where == "pod" else replace(pod, repo=str(alpha.repo))
    with pytest.raises(SystemExit) as ended:
        run_stage("plan", run=beta.record.run.id, config=config.to_text())
    assert ended.value.code == 50
    assert "which owns the project beta, found one of" in capsys.readouterr().err


def test_a_run_that_another_repository_made_before_the_name_had_an_owner_is_not_driven_on(alpha, beta, tmp_path):
    """What drivers of earlier versions left open."""
    alone = replace(alpha, site=Site(store=StoreTable(url=f"file:{tmp_path / 'other'}")))
    stolen = alone.run(until="build")
    for entry in list_all(alone.store, stolen.prefix):
        beta.store.put(entry.key, alone.store.get(entry.key).data)
    with pytest.raises(IntegrityError, match=r"belongs to .*beta\.git, and the commit of this run came from .*alpha"):
        beta.stage("plan", stolen.run.id)


@pytest.fixture
def published(tmp_path, tmp_path_factory):
    """A version of bytegpt in a store that others share, whose run names its repository."""
    workspace, _ = template(tmp_path_factory, "published")
    workspace = copy_of(workspace, tmp_path / "root")
    (workspace.repo / ".gangline" / "store").rename(tmp_path / "shared")
    workspace.store = type(workspace.store)(tmp_path / "shared")
    return owned(workspace, "forge.example/acme/bytegpt")


def owned(workspace, address, project="bytegpt"):
    """The project belongs to `address`, of which the workspace is a clone, and so is its run."""
    git(workspace.repo, "config", "gangline.repository", address)
    claim = ProjectClaim(project=project, repository=address, time="2026-01-01").signed(workspace.key)
    workspace.store.put(claim_key(project), claim.to_json())
    made_by(workspace, address)
    return workspace


def made_by(workspace, address):
    record = read_record(workspace.store, workspace.record.prefix)
    workspace.record = workspace.place(replace(record, commit=replace(record.commit, repository=address)))


def check_of(workspace, repo=None):
    checks = verify(
        "bytegpt/1", store=workspace.store, repo=repo or workspace.repo, site=workspace.site,
        environ=workspace.environ,
    )  # fmt: skip
    return next(each for each in checks if each.name == "project")


def promoted(workspace, repo=None):
    return promote(
        "bytegpt", 1, "production", store=workspace.store, repo=repo or workspace.repo, site=workspace.site,
        environ=workspace.environ, because="it is good", read_record=read_record,
    )  # fmt: skip


def test_a_version_of_the_owner_is_verified_and_promoted(published):
    assert check_of(published).text == "bytegpt of forge.example/acme/bytegpt"
    assert promoted(published).version == 1


def refused(workspace, match, repo=None):
    assert not check_of(workspace, repo).ok
    with pytest.raises(IntegrityError, match=match):
        promoted(workspace, repo)
    assert read_alias(workspace.store, "bytegpt", "production") is None


def test_a_version_whose_run_another_repository_made_is_never_promoted(published):
    made_by(published, "forge.example/alex/bytegpt")
    refused(published, "project: the project bytegpt belongs to .*acme/bytegpt, and the commit of this run came from")


def test_a_version_is_not_promoted_from_a_clone_of_another_repository(published, tmp_path):
    git(tmp_path, "clone", "--quiet", str(published.repo), "other")
    git(tmp_path / "other", "config", "gangline.repository", "forge.example/alex/bytegpt")
    refused(published, "project: wanted a clone of forge.example/acme/bytegpt", tmp_path / "other")


def test_a_version_of_a_project_without_an_owner_is_not_promoted(published):
    published.store.delete(claim_key("bytegpt"))
    refused(published, "project: the project bytegpt has no owner in")


def test_a_model_of_another_project_is_not_promoted(published):
    published.store.put("models/bytegpt/project.json", b'{"project":"beta"}')
    refused(published, "project: the model bytegpt belongs to the project beta, this is of bytegpt")


def test_a_run_of_another_repository_is_refused_by_its_publish_stage(alpha, beta, monkeypatch):
    made = replace(beta.record, commit=replace(beta.record.commit, repository="forge.example/alex/beta"))
    ctx = Context(beta, made)
    with pytest.raises(IntegrityError, match=r"commit of this run came from forge\.example/alex/beta"):
        publish_stage.publish(ctx)


class Context:
    """What the publish stage looks at first."""

    def __init__(self, workspace, record):
        self.record, self.store, self.site, self.sealer = record, workspace.store, workspace.site, workspace.sealer
        self.repo = workspace.repo
