"""Looking at the machine: by a real child process, once, with its reasons passed on."""

import json

import pytest
from tests.line import repositories

from gangline.errors import ConfigError, TrainingError
from gangline.line import inventory
from gangline.line.build import code_layer, environment
from gangline.line.question import ask

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


def model_of(repo):
    question = ask(repo, commit=None, overrides=(), strategy=None)
    code = code_layer.pack(question.repository, question.tree, question.line.project).data
    return inventory.Model(line=question.line, code=code, environment=environment.of_this_interpreter())


def task_repository(folder, source):
    line = repositories.LINE.replace('command = ["python", "answer.py"]', 'task = "model:Tiny"')
    return repositories.make_repository(folder, {"line.toml": line, "model.py": source})


def test_the_model_is_counted_by_a_child_that_sees_no_secret_and_the_answer_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("S3_KEY", "key:canary-7f3a")
    source = TASK.replace("import torch\n", "import os, torch\nassert 'canary' not in str(os.environ), 'seen'\n")
    model = model_of(task_repository(tmp_path / "repo", source))
    seen = inventory.look(model, home=tmp_path)
    assert seen.profile.parameters == 8
    assert seen.inventory.cores >= 1
    monkeypatch.setattr(inventory, "_inspect", lambda _: pytest.fail("asked twice"))
    assert inventory.look(model, home=tmp_path) == seen


def test_a_task_that_cannot_be_built_says_why(tmp_path):
    broken = TASK.replace("torch.nn.Linear(3, 2)", "torch.nn.Linear(options['width'], 2)")
    model = model_of(task_repository(tmp_path / "repo", broken))
    with pytest.raises((ConfigError, TrainingError), match="width"):
        inventory.look(model, home=tmp_path)
    assert not list(tmp_path.glob("cache/*"))


def test_another_code_is_another_question(tmp_path):
    repo = task_repository(tmp_path / "repo", TASK)
    before = inventory.answer_file(model_of(repo), tmp_path)
    repositories.commit(repo, {"model.py": TASK + "# changed\n"})
    assert inventory.answer_file(model_of(repo), tmp_path) != before


def test_an_answer_that_is_no_json_is_refused(tmp_path, monkeypatch):
    model = model_of(repositories.make_repository(tmp_path / "repo"))
    monkeypatch.setattr(inventory, "_inspect", lambda _: b"Segmentation fault")
    with pytest.raises(ConfigError, match="Segmentation"):
        inventory.look(model, home=tmp_path)


def test_installed_packages_decide_the_environment():
    assert environment.installed()["pytest"] == pytest.__version__
    assert environment.versions()["gangline"]
    assert len(environment.of_this_interpreter()) == 64
    assert environment.of_lock(b"a") != environment.of_lock(b"b")
    assert json.dumps(environment.versions())
