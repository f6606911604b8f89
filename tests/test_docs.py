"""The documentation: it builds with every link checked, generated pages are current, quoted commands exist."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import yaml
from tests import proofs as proof
from tests.source import FILES, SOURCE
from tools.api_page import api_page
from tools.commands_page import commands_page
from tools.gpus_page import gpus_page
from tools.metrics_page import metrics_page
from tools.optimizer_page import optimizer_page
from tools.python_page import python_page
from typer.core import TyperGroup
from typer.main import get_command

from gangline import train
from gangline.cli.main import app
from gangline.metrics.catalogue import CATALOGUE
from gangline.planner.known_gpus import known_gpus
from gangline.spec.config.load import load_line
from gangline.spec.strategies import STRATEGIES

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_QUOTED = re.compile(r"^\$ (?:\w+=\S+ )*(gangline [^#;|&>\n]*)", re.MULTILINE)


def test_the_site_builds_with_every_link_checked(tmp_path):
    shutil.copytree(ROOT / "docs", tmp_path / "docs")  # a build leaves a cache beside its settings
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    built = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    page = (tmp_path / "build/docs/index.html").read_text("utf-8")
    assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//(?!zensical)""", page)


def test_the_navigation_has_every_page_once():
    def pages(entry):
        if isinstance(entry, str):
            return [entry]
        return [page for each in (entry.values() if isinstance(entry, dict) else entry) for page in pages(each)]

    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    found = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(pages(settings["nav"])) == sorted(found)


def test_the_page_of_the_api_is_current():
    assert (ROOT / "docs/reference/api.md").read_text("utf-8") == api_page(), "make schemas rewrites it"


def test_the_page_of_python_is_current_and_has_every_public_name():
    page = (ROOT / "docs/reference/python.md").read_text("utf-8")
    assert page == python_page(), "make schemas rewrites it"
    for name in train.__all__:
        assert f"`gangline.train.{name}`" in page


def test_the_page_of_commands_is_current():
    assert (ROOT / "docs/reference/commands.md").read_text("utf-8") == commands_page(), "make schemas rewrites it"


def test_the_page_of_metrics_is_current_and_has_every_series_once():
    page = (ROOT / "docs/reference/metrics.md").read_text("utf-8")
    assert page == metrics_page(), "make schemas rewrites it"
    for name in CATALOGUE:
        assert page.count(f"| `{name}` |") == 1


def test_the_page_of_built_in_gpus_is_current_and_has_every_kind_once():
    page = (ROOT / "docs/reference/gpus.md").read_text("utf-8")
    assert page == gpus_page(), "make schemas rewrites it"
    for name in known_gpus():
        assert page.count(f"| `{name}` |") == 1


def test_the_page_of_optimizer_plans_is_current():
    assert (ROOT / "docs/reference/optimizer-plans.md").read_text("utf-8") == optimizer_page(), (
        "make schemas rewrites it"
    )


def test_every_strategy_that_a_plan_may_name_is_proved_and_the_table_is_current():
    proofs = json.loads(proof.FILE.read_text())
    assert proof.PAGE.read_text() == proof.draw(proofs), "python -m tests.proofs draws it again"
    shown = {re.split(r"[,:]? ", line.removeprefix("| "))[0] for line in proof.PAGE.read_text().splitlines()}
    assert {*STRATEGIES} - shown == set(), "make proofs"


def test_every_proof_is_a_test_that_is_still_there():
    for each in json.loads(proof.FILE.read_text()):
        file, _, name = each["test"].partition("::")
        assert f"def {name.split('[')[0]}(" in (ROOT / file).read_text(), f"{each['test']}: make proofs"


def test_quoted_commands_are_commands_with_such_options():
    quoted = [(page, line) for page in PAGES for line in _QUOTED.findall(page.read_text("utf-8"))]
    assert quoted
    for page, line in quoted:
        words = shlex.split(line.replace("...", "").replace("…", "").replace("\\", ""))[1:]
        _require_known(words, f"{page.relative_to(ROOT)}: {line}")


def _require_known(words: list[str], line: str) -> None:
    """Walk groups by name, then look up each option; values are the reader's own."""
    command = get_command(app)
    names: list[str] = []
    while isinstance(command, TyperGroup) and words and not words[0].startswith("-"):
        context = command.make_context("gangline", [], resilient_parsing=True)
        found = command.get_command(context, words[0])
        assert found is not None, f"{line}: there is no command {words[0]!r}"
        command, names, words = found, [*names, words[0]], words[1:]
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for word in words:
        if word.startswith("-") and word != "--":
            name = word.split("=")[0]
            assert name in {*options, "--help"}, f"{line}: gangline {' '.join(names)} has no option {name}"


@pytest.mark.parametrize("page", sorted((ROOT / "docs/explained").glob("*.md")), ids=lambda page: page.stem)
def test_names_on_a_page_that_explains_are_those_of_the_source(page):
    """Files, and names of the code: classes, functions, fields, constants."""
    quoted = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL))
    files = [each for each in quoted if each.endswith(".py")]
    names = {part for each in quoted if re.fullmatch(r"[A-Za-z_]+(\.[A-Za-z_]+)?", each) for part in each.split(".")}
    assert files
    assert [each for each in files if not (SOURCE / each).is_file() and not list(SOURCE.rglob(f"*/{each}"))] == []
    assert names - source_words() == set()


@cache
def source_words() -> set[str]:
    return {word for path in FILES for word in re.findall(r"\w+", path.read_text("utf-8"))}


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_first_line_of_a_page_is_one(page, tmp_path):
    text = (ROOT / page).read_text("utf-8")
    (tmp_path / "line.toml").write_text(text.partition("```toml\n")[2].partition("```")[0])
    (tmp_path / "requirements.txt").write_bytes((ROOT / "requirements/run.txt").read_bytes())
    line = load_line(tmp_path)
    assert line.project.command is not None, "the first example is a script of one's own"
    assert text.index("gangline init") < text.index("gangline new")
