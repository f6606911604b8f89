"""The module of a hostile task, looked at, followed and answering: it finds no secret."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tests.attacks.canaries import Canaries, hunts
from tests.line import repositories
from tests.line.stages.test_model_inspection import model_of, task_repository
from tests.planner.cases import SITE, cpu, line

from gangline.errors import IntegrityError
from gangline.launch.sandbox import find_engine
from gangline.launch.sandbox.module_runner import ModuleJob
from gangline.line.gangs.sandbox import local_runner
from gangline.line.stages.memory_run import run_memory_check
from gangline.line.stages.model_inspection import inspect_model
from gangline.planner.choice import choose_plan
from gangline.planner.plans import make_plan
from gangline.signing.keys import LOCAL_NAME, key_folder, signing_key
from gangline.spec.config.site import SandboxTable, Site
from gangline.spec.data_source import DataSource
from gangline.spec.plan import ProgramSpec
from gangline.spec.profile import ModelProfile

pytestmark = [pytest.mark.row("P5"), pytest.mark.row("P10"), pytest.mark.timeout(240), pytest.mark.long]
TASK = """\
import torch, helper
from gangline.train import Loss
helper.hunt("import")
class Tiny:
    def build_model(self, options):
        helper.hunt("build")
        return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 8))
    def example(self, options):
        return {"input": torch.zeros(64), "wanted": torch.zeros(8)}
    def build_data(self, split, options):
        return [self.example(options)] * 4
    def loss(self, outputs, batch):
        helper.hunt("loss")
        return Loss(total=((outputs - batch["wanted"]) ** 2).sum(), weight=len(outputs))
"""


class Overheard:
    """A runner that remembers what was said."""

    def __init__(self, runner):
        self._runner, self.said = runner, ""

    def run(self, job: ModuleJob):
        done = self._runner.run(job)
        self.said += done.stderr.decode() + done.stdout.decode()
        return done


@pytest.fixture
def repo(tmp_path):
    return task_repository(tmp_path / "repo", TASK)


@pytest.fixture
def canaries(tmp_path, monkeypatch, repo):
    made = Canaries(tmp_path)
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    key = key_folder(environ) / LOCAL_NAME
    signing_key(Site(), environ)
    made.paths.append(key)
    made.values.append(key.read_text().splitlines()[1])
    made.plant(tmp_path / ".ssh" / "id")
    made.plant(repo / ".git" / "canary.conf", mode=0o644)
    made.plant(repo / ".gangline" / "store" / "runs" / "another" / "secret", mode=0o644)
    made.out_of_reach += made.paths
    monkeypatch.setenv("FORGE_TOKEN", made.new())
    with made.process():
        repositories.commit(repo, {"helper.py": made.hunter()})
        yield made


def runner_of(repo: Path, site: Site = Site()) -> Overheard:  # noqa: B008  # frozen
    root = repo.parent
    return Overheard(
        local_runner(repo, site=site, environ={"HOME": str(root), "XDG_CONFIG_HOME": str(root / "config")})
    )


def demand_nothing_found(canaries: Canaries, said: str, *phases: str) -> None:
    reported = hunts(said)
    assert {each["hunted"] for each in reported} >= set(phases)
    assert [each for each in reported if each["found"] or each["written"]] == []
    assert canaries.carried_off(canaries.root) == []


@pytest.mark.parametrize("trust", ["own", "fork"])
def test_look_at_the_model_and_its_memory_run(repo, canaries, trust):
    if not find_engine("auto", wide=trust == "own").hides:
        pytest.skip("needs bubblewrap: apt-get install bubblewrap")
    model, runner = replace(model_of(repo), trust=trust), runner_of(repo)
    assert inspect_model(model, home=repo / ".gangline", runner=runner).profile.blocks == 0
    demand_nothing_found(canaries, runner.said, "import", "build", "loss")
    inventory = cpu(2, 8e9)
    choice = choose_plan(line(), SITE, inventory, ModelProfile(parameters=64 * 64))
    plan = make_plan(line(), choice, run="demo-1", run_prefix="runs/demo", data=DataSource())
    plan, runner = replace(plan, program=ProgramSpec(task="model:Tiny")), runner_of(repo)
    run_memory_check(model, choice, plan, site=SITE, inventory=inventory, always=True, notify=print, runner=runner)
    demand_nothing_found(canaries, runner.said, "import", "build", "loss")


@pytest.mark.parametrize("trust", ["own", "fork"])
def test_published_model_that_answers(repo, canaries, tmp_path, trust):
    if not find_engine("auto", wide=trust == "own").hides:
        pytest.skip("needs bubblewrap: apt-get install bubblewrap")
    folder, runner = tmp_path / "export" / "model", runner_of(repo)
    folder.mkdir(parents=True)
    built = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 8))
    save_file(built.state_dict(), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"task": "model:Tiny", "model": {}}))
    done = runner.run(
        ModuleJob(
            module="gangline.train.roles.smoke_test", arguments=("../model", "--code", ".", "--options",
            "../options.json"),
            code=model_of(repo).code, files={"model": folder, "options.json": b"{}"}, seconds=100, trust=trust,
        )
    )  # fmt: skip
    assert done.exit_code == 0, done
    assert json.loads(done.stdout)["samples"] == 2
    demand_nothing_found(canaries, runner.said, "import", "build", "loss")


def test_where_nothing_keeps_it_apart_a_forks_code_is_not_run(repo, canaries):
    runner = runner_of(repo, Site(sandbox=SandboxTable(mode="off")))
    with pytest.raises(
        IntegrityError, match=r"a fork's commit, found none: sandbox.mode = off in site.toml; apt install"
    ):
        inspect_model(replace(model_of(repo), trust="fork"), home=repo / ".gangline", runner=runner)
    assert hunts(runner.said) == []
    assert inspect_model(model_of(repo), home=repo / ".gangline", runner=runner).profile.parameters
    assert any(each["found"] for each in hunts(runner.said)), "the hunter does find what is not hidden"
