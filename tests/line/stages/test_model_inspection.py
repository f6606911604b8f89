"""Looking at the machine: by a real child process, once, with its reasons passed on."""

import json
from dataclasses import replace

import pytest
from tests.line import repositories

from gangline.build import code_layer, own_environment
from gangline.errors import ConfigError, TrainingError
from gangline.launch.sandbox.module_runner import ModuleResult
from gangline.line.gangs.sandbox import local_runner
from gangline.line.request.run_request import resolve_request
from gangline.line.stages import model_inspection
from gangline.spec.config.site import Site

pytestmark = pytest.mark.long

TASK = """\
import torch
class Tiny:
    def build_model(self, options):
        return torch.nn.Linear(3, 2)
    def build_data(self, options):
        raise NotImplementedError
    def loss(self, model, batch):
        raise NotImplementedError
"""


class Answers:
    """A runner that is asked once at most."""

    def __init__(self, stdout):
        self.stdout, self.job = stdout, None

    def run(self, job):
        assert self.stdout is not None
        assert self.job is None
        self.job = job
        return ModuleResult(exit_code=0, stdout=self.stdout, stderr=b"")


def model_of(repo):
    question = resolve_request(repo, commit=None, overrides=(), strategy=None)
    code = code_layer.pack(question.repository, question.tree, question.line.project).data
    return model_inspection.ModelSource(line=question.line, code=code, environment=own_environment.interpreter_digest())


def task_repository(folder, source):
    line = repositories.LINE.replace('command = ["python", "answer.py"]', 'task = "model:Tiny"')
    return repositories.make_repository(folder, {"line.toml": line, "model.py": source})


def test_the_model_is_counted_by_a_child_that_sees_no_secret_and_the_answer_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("S3_KEY", "key:canary-7f3a")
    source = TASK.replace("import torch\n", "import os, torch\nassert 'canary' not in str(os.environ), 'seen'\n")
    model = model_of(task_repository(tmp_path / "repo", source))
    runner = local_runner(tmp_path / "repo", site=Site(), environ={"HOME": str(tmp_path)})
    seen = model_inspection.inspect_model(model, home=tmp_path, runner=runner)
    assert seen.profile.parameters == 8
    assert seen.inventory.cores >= 1
    assert model_inspection.inspect_model(model, home=tmp_path, runner=Answers(None)) == seen, "asked twice"


def test_a_task_that_cannot_be_built_says_why(tmp_path):
    broken = TASK.replace("torch.nn.Linear(3, 2)", "torch.nn.Linear(options['width'], 2)")
    model = model_of(task_repository(tmp_path / "repo", broken))
    runner = local_runner(tmp_path / "repo", site=Site(), environ={"HOME": str(tmp_path)})
    with pytest.raises((ConfigError, TrainingError), match="width"):
        model_inspection.inspect_model(model, home=tmp_path, runner=runner)
    assert not list(tmp_path.glob("cache/*"))


def test_another_code_is_another_question(tmp_path):
    repo = task_repository(tmp_path / "repo", TASK)
    before = model_inspection.inspection_cache_file(model_of(repo), tmp_path)
    repositories.commit(repo, {"model.py": TASK + "# changed\n"})
    assert model_inspection.inspection_cache_file(model_of(repo), tmp_path) != before


def test_of_a_program_nothing_runs_and_its_next_commit_is_not_asked_again(tmp_path):
    model = model_of(repositories.make_repository(tmp_path / "repo"))
    model_inspection.inspect_model(model, home=tmp_path, runner=Answers(b'{"cores": 2, "devices": []}'))
    later = replace(model, code=b"another", environment="another")
    assert model_inspection.inspect_model(later, home=tmp_path, runner=Answers(None)).inventory.cores == 2


def test_an_answer_that_is_not_json_is_refused(tmp_path):
    model = model_of(repositories.make_repository(tmp_path / "repo"))
    with pytest.raises(ConfigError, match="Segmentation"):
        model_inspection.inspect_model(model, home=tmp_path, runner=Answers(b"Segmentation fault"))


@pytest.mark.parametrize(
    "answer",
    [b"[]", b"{}" , b'{"cores": "many", "devices": []}', b'{"cores": 1, "devices": [{"kind": "moon"}]}',
     b'{"cores": 1, "devices": [], "parameters": "x"}', b'{"cores": 1, "devices": [], "parameters": 1, "traces": [1]}',
     b"[" * 100_000],
)  # fmt: skip
def test_what_a_model_says_of_itself_is_refused_where_it_is_not_an_inspection_and_not_kept(tmp_path, answer):
    model = model_of(repositories.make_repository(tmp_path / "repo"))
    for _ in range(2):
        with pytest.raises(ConfigError, match="wanted the inspection of a model, found"):
            model_inspection.inspect_model(model, home=tmp_path, runner=Answers(answer))
    assert not list(tmp_path.glob("cache/*"))


def test_code_of_a_commit_is_for_its_model_alone_and_runs_as_whose_it_is(tmp_path):
    program, task = repositories.make_repository(tmp_path / "a"), task_repository(tmp_path / "b", TASK)
    for repo, wanted in ((program, ("own", True)), (task, ("fork", False))):
        runner = Answers(b'{"cores": 2, "devices": []}')
        model_inspection.inspect_model(replace(model_of(repo), trust="fork"), home=tmp_path / repo.name, runner=runner)
        assert (runner.job.trust, runner.job.code is None) == wanted


def test_the_variables_of_the_line_and_the_names_of_its_data_are_reported_but_no_secret(tmp_path):
    repo = task_repository(tmp_path / "repo", TASK)
    model = replace(model_of(repo), data=("b/two.csv", "a/one.csv"))
    table = replace(model.line.train, env={"WIDTH": "3", "TOKEN": "secret:env:TOKEN"})
    asked = replace(model, line=replace(model.line, train=table))
    runner = Answers(b'{"cores": 2, "devices": []}')
    model_inspection.inspect_model(asked, home=tmp_path, runner=runner)
    assert runner.job.env == {"WIDTH": "3"}
    assert runner.job.arguments[-2:] == ("--data", '["a/one.csv", "b/two.csv"]')
    files = {
        model_inspection.inspection_cache_file(each, tmp_path)
        for each in (asked, model, replace(asked, data=("other.csv",)))
    }
    assert len(files) == 3


def test_installed_packages_decide_the_environment():
    assert own_environment.installed_versions()["pytest"] == pytest.__version__
    assert own_environment.software_versions()["gangline"]
    assert len(own_environment.interpreter_digest()) == 64
    assert json.dumps(own_environment.software_versions())


def test_a_schedule_of_the_commit_is_asked_for_a_program_too(tmp_path):
    line = repositories.LINE + '[train.schedule]\nkind = "answer:nothing"\n'
    model = model_of(repositories.make_repository(tmp_path / "repo", {"line.toml": line, "answer.py": ""}))
    runner = local_runner(tmp_path / "repo", site=Site(), environ={"HOME": str(tmp_path)})
    with pytest.raises(ConfigError, match="answer has no function 'nothing'"):
        model_inspection.inspect_model(model, home=tmp_path, runner=runner)
