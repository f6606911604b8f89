"""The repository that `gangline new` makes: it parses, names what is there, and is the example people read about."""

from pathlib import Path

import pytest

from gangline.cli.templates import TEMPLATES, render
from gangline.data.resolve import resolve_text
from gangline.errors import UsageError
from gangline.spec.config.data_keys import DataAccess
from gangline.spec.config.load import load_line_text

EXAMPLE = Path(__file__).parents[3] / "examples" / "bytegpt"


def test_new_repository_has_the_files_a_user_expects():
    assert list(TEMPLATES) == ["model"]
    assert set(render("model", name="demo")) == {".gitignore", "README.md", "line.toml", "model.py"}


def test_line_of_a_new_repository_has_no_problem_and_finds_its_text():
    text = render("model", name="demo")["line.toml"]
    line = load_line_text(text, file="line.toml")
    assert line.project.name == "demo"
    assert len(resolve_text(line.data.text, tracked={}, access=DataAccess())) > 20
    assert len(text.splitlines()) == 24


def test_model_of_a_new_repository_is_the_example():
    assert render("model", name="demo")["model.py"] == (EXAMPLE / "model.py").read_text()


def test_unknown_template_names_those_there_are():
    with pytest.raises(UsageError, match="wanted one of model"):
        render("nothing", name="demo")
