"""What a program missed, by its log or by what it looked for: files, a variable of the shell, a module."""

from types import SimpleNamespace

import pytest
from tests.line import repositories

from gangline.build.left_out import LeftOut
from gangline.errors import TrainingError
from gangline.git.repository import Repository
from gangline.line.gangs.attempts import missing_file_hint
from gangline.line.gangs.missed_inputs import missing_package, missing_variable, path_outside_layer, search_text
from gangline.spec.config.line import ProjectTable
from gangline.spec.gang.status import GangEnd
from gangline.spec.record import RunInfo
from gangline.spec.run_flags import stage

PROJECT = ProjectTable(name="cheap", command=("python", "answer.py"), exclude=("docs/**", "*.md"))
LEFT_OUT = LeftOut(paths=("docs/p1.md", "docs/p2.md", "README.md"), size_bytes=1, keys=("project.exclude",))

ENVIRON = {"MY_DATA": "/data", "MY_TOKEN": "t0p", "EMPTY": "", "LANG": "C"}


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


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("KeyError: 'MY_DATA'", 'ranks do not get it: in line.toml, [train.env] with MY_DATA = "..."'),
        ("KeyError: 'MY_TOKEN'", 'MY_TOKEN = "secret:env:MY_TOKEN"'),
        ("InterpolationResolutionError: Environment variable 'MY_DATA' not found", "MY_DATA is set here"),
        ("KeyError: 'EMPTY'", ""),
        ("KeyError: 'LANG'", ""),
        ("KeyError: 'labels'", ""),
        ("ValueError: 'MY_DATA'", ""),
    ],
)  # fmt: skip
def test_a_variable_that_only_the_shell_has_is_named_without_its_value(line, says):
    said = missing_variable([line, "and more"], ENVIRON, ())
    assert says in said if says else said == ""
    assert "t0p" not in said
    assert missing_variable([line], ENVIRON, ("MY_DATA", "MY_TOKEN")) == ""


@pytest.mark.parametrize(
    ("files", "lock", "says"),
    [
        ((), None, "ranks run in the environment of gangline, which has no pkg: env.lock"),
        ((), "uv.lock", "the environment of uv.lock has no pkg: add its package, and lock again"),
        (("src/pkg/__init__.py",), None, 'pkg is in src of the commit: in line.toml, project.path = ["lib", "src"]'),
        (("tools/pkg.py",), "uv.lock", "pkg is in tools of the commit"),
        (("lib/pkg.py", "pkg.py"), None, "ranks run in the environment of gangline"),
    ],
)
def test_a_module_that_was_not_found_is_in_the_commit_or_in_no_package(files, lock, says):
    lines = ["ModuleNotFoundError: No module named 'pkg.model'"]
    assert says in missing_package(lines, files, path=["lib"], lock=lock)
    assert missing_package(["ImportError: pkg"], files, path=[], lock=lock) == ""


def test_the_version_of_the_commits_own_package_is_asked_in_vain():
    said = missing_package(
        ["PackageNotFoundError: No package metadata was found for my-pkg"], (), path=[], lock="uv.lock"
    )
    assert "my-pkg is not installed, as no package of the commit itself is" in said


def test_the_reason_of_a_failed_run_has_both(workspace):
    workspace.environ |= {"MY_DATA": "/data"}
    for text, says in (("import os; os.environ['MY_DATA']", "MY_DATA is set here"), ("import pkg_x", "has no pkg_x")):
        repositories.commit(workspace.repo, {"answer.py": f"{text}\n"})
        with pytest.raises(TrainingError, match=says):
            workspace.run()
