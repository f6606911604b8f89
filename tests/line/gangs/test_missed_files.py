"""Files that a program missed: why its code layer lacks them, by its log or by what it looked for."""

from types import SimpleNamespace

import pytest
from tests.line import repositories

from gangline.build.left_out import LeftOut
from gangline.errors import TrainingError
from gangline.git.repository import Repository
from gangline.line.gangs.attempts import missing_file_hint
from gangline.line.gangs.missed_files import path_outside_layer, search_text
from gangline.spec.config.line import ProjectTable
from gangline.spec.gang.status import GangEnd
from gangline.spec.record import RunInfo
from gangline.spec.run_flags import stage

PROJECT = ProjectTable(name="cheap", command=("python", "answer.py"), exclude=("docs/**", "*.md"))
LEFT_OUT = LeftOut(paths=("docs/p1.md", "docs/p2.md", "README.md"), size_bytes=1, keys=("project.exclude",))


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("words.csv", "words.csv is in the folder, but git ignores it: a run has only the files of the commit"),
        ("/gangs/mine/code/words.csv", "words.csv is in the folder, but git ignores it"),
        ("/pods/code/0123abcd/new/words.txt", "new/words.txt is in the folder, but it is not committed"),
        ("answer.py", ""),
        ("../repo/words.csv", ""),
        ("nowhere.csv", ""),
        ("/elsewhere/words.csv", ""),
        ("No module named 'new.helper'", "new/helper.py is in the folder, but it is not committed"),
        ("No module named 'lib'", "lib/__init__.py is in the folder, but it is not committed"),
        ("No module named 'answer'", ""),
        ("docs/p1.md", "docs/p1.md is in the commit, but project.exclude of line.toml leaves it out"),
        ("docs", "docs is in the commit, but project.exclude of line.toml leaves it out"),
        ("/gangs/mine/code/README.md", "README.md is in the commit, but project.exclude of line.toml leaves it out"),
        ("docs/gone.md", ""),
        ("line.toml", "line.toml is in the commit, but it is no file of a run, which has its values"),
    ],
)
def test_a_program_that_misses_a_file_that_its_layer_lacks_is_shown_why(tmp_path, asked, says):
    repo = repositories.make_repository(tmp_path / "repo")
    repositories.commit(repo, {".gitignore": "*.csv\n", "docs/p1.md": "words", "README.md": "words"})
    (repo / "words.csv").write_text("words")
    for name in ("new/words.txt", "new/helper.py", "lib/__init__.py"):
        (repo / name).parent.mkdir(exist_ok=True)
        (repo / name).write_text("words")
    repository = Repository.at(repo)
    error = "ModuleNotFoundError: {}" if asked.startswith("No module") else "FileNotFoundError: [Errno 2] No file: '{}'"
    lines = [error.format(asked), "and more"]
    found = path_outside_layer(lines, repository, repository.tree("HEAD"), PROJECT)
    assert says in found if says else found == ""


def test_a_fork_is_not_shown_what_is_in_the_folder(tmp_path):
    repo = repositories.make_repository(tmp_path / "repo")
    (repo / "private.txt").write_text("words")
    repository, line = Repository.at(repo), SimpleNamespace(project=PROJECT)
    end = GangEnd(exit_code=1, retry="never", reason="", evidence={"log": ["FileNotFoundError: 'private.txt'"]})
    said = {}
    for trust in ("own", "fork"):
        commit = SimpleNamespace(trust=trust, tree=repository.tree("HEAD"))
        record = SimpleNamespace(commit=commit, run=RunInfo(id="r", project="p", created="", target="kubernetes"))
        said[trust] = missing_file_hint(SimpleNamespace(record=record, repository=repository, line=line), end)
    assert "private.txt is in the folder, but it is not committed" in said["own"]
    assert said["fork"] == ""


@pytest.mark.parametrize(
    ("searches", "folder", "says"),
    [
        (["*.csv", "docs/*.md"], "", "looked for docs/*.md: project.exclude leaves out docs/p1.md, docs/p2.md"),
        (["docs"], "", "looked for docs: project.exclude leaves out docs/p1.md, docs/p2.md"),
        (["**/*"], "", "leaves out docs/p1.md, docs/p2.md, README.md"),
        (["service/docs/*.md"], "service", "looked for docs/*.md: project.exclude leaves out docs/p1.md"),
        (["docs/*.md"], "service", ""),
        (["*.csv", "pages/**/*.md", "["], "", ""),
        ([], "", ""),
    ],
)
def test_a_search_that_would_have_found_what_is_left_out_is_named(searches, folder, says):
    found = search_text(searches, LEFT_OUT, folder=folder)
    assert says in found if says else found == ""


CORPUS = """\
import glob, json
pages = [open(p).read() for p in sorted(glob.glob("docs/*.md"))]
{end}
json.dump({{"loss": 1.0, "tokens": sum(map(len, pages))}}, open("metrics.json", "w"))
"""
LINE = repositories.LINE.replace('exclude = ["*.md"]', 'metrics = "metrics.json"\ndistributed = false\n{exclude}')


def commit_corpus(workspace, *, exclude="", end=""):
    files = {"answer.py": CORPUS.format(end=end), "docs/p1.md": "abc", "docs/p2.md": "de", "README.md": "r"}
    repositories.commit(workspace.repo, files | {"line.toml": LINE.format(exclude=exclude)})


def test_a_corpus_in_docs_is_read_unless_the_line_leaves_it_out_which_the_run_says(workspace):
    commit_corpus(workspace)
    whole = workspace.run()
    assert whole.metrics["tokens"].value == 5
    assert "left out" not in stage(whole, "build").message
    commit_corpus(workspace, exclude='exclude = ["docs/**", "*.md"]')
    cut = workspace.run()
    assert cut.metrics["tokens"].value == 0
    assert "3 tracked files are left out by project.exclude, 6 B" in stage(cut, "build").message
    assert stage(cut, "build").outputs["left_out"]["paths"] == ["README.md", "docs/p1.md", "docs/p2.md"]
    items = next(gate.evidence["items"] for gate in cut.gates if gate.name == "reproducible")
    code = next(each["by"] for each in items if each["name"] == "code")
    assert code.endswith("3 tracked files are left out by project.exclude, 6 B: README.md, docs/p1.md, docs/p2.md")
    said = "the program looked for docs/*.md: project.exclude leaves out docs/p1.md, docs/p2.md"
    assert said in [event.text for event in cut.events]


def test_a_failure_after_such_a_search_names_it(workspace):
    commit_corpus(workspace, exclude='exclude = ["docs/**"]', end="assert pages, 'no pages'")
    with pytest.raises(TrainingError, match=r"no pages.*; the program looked for docs/\*\.md: project.exclude leaves"):
        workspace.run()
