"""Whole runs whose program takes code or data from somewhere else than its commit, as the record tells them."""

import io
import json
import platform
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from tests.line import repositories

from gangline.build import code_layer
from gangline.build.own_environment import Editable, editable_packages_in, missing_module, refuse_work_tree
from gangline.errors import ConfigError
from gangline.git.repository import Repository
from gangline.spec.config.line import ProjectTable
from gangline.spec.config.site import SandboxTable
from gangline.spec.record import UNDECLARED
from gangline.spec.run_flags import stage
from gangline.storage.objects.code_layer import LayerFile, pack


def open_site(workspace):
    """No sandbox: everything of the machine is within reach."""
    workspace.site = replace(workspace.site, sandbox=SandboxTable(mode="off"))
    return workspace


def test_labels_outside_of_the_repository_are_named_and_the_run_is_not_called_reproducible(workspace, tmp_path):
    labels = tmp_path / "labels.txt"
    labels.write_text("0 1 2")
    text = f"open({str(labels)!r}).read()\n{repositories.PROGRAM}"
    repositories.commit(workspace.repo, {"answer.py": text, "line.toml": repositories.LINE})
    record = open_site(workspace).run()
    assert [(each.path, each.size_bytes) for each in record.ran.reads] == [(str(labels), 5)]
    (said,) = [event.text for event in record.events if event.kind == UNDECLARED]
    assert said.startswith(f"a rank read 1 file that the line does not declare: {labels}; data.text")
    (gate,) = [each for each in record.gates if each.name == "reproducible"]
    assert gate.verdict == "unknown"
    data = next(each for each in gate.evidence["items"] if each["name"] == "data")
    assert (data["pinned"], data["by"].partition(";")[0]) == ("unknown", "none declared")


def data_item(record):
    (gate,) = [each for each in record.gates if each.name == "reproducible"]
    return next((each["pinned"], each["by"]) for each in gate.evidence["items"] if each["name"] == "data")


def test_data_that_a_started_program_read_is_not_called_pinned(workspace, tmp_path):
    (tmp_path / "labels.txt").write_text("0 1 2")
    text = f"import subprocess\nsubprocess.run(['cat', {str(tmp_path / 'labels.txt')!r}])\n{repositories.PROGRAM}"
    repositories.commit(workspace.repo, {"answer.py": text, "line.toml": repositories.LINE})
    record = open_site(workspace).run()
    assert record.ran.programs == ("cat",)
    assert data_item(record) == ("unknown", "none declared; reads of cat are not visible")


def test_an_environment_that_the_program_went_to_by_itself_is_named_and_not_called_pinned(workspace, tmp_path):
    """As `conda run -n other python train.py` does."""
    other = tmp_path / "other"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(other)], check=True)
    python = str(other / "bin" / "python")
    text = f"import os\nos.execv({python!r}, [{python!r}, 'inner.py'])\n"
    inner = "import pathlib\npathlib.Path('metrics.json').write_text('{\"answer\": 42}')\n"
    line = repositories.LINE.replace('"answer.py"]', '"answer.py"]\nmetrics = "metrics.json"')
    repositories.commit(workspace.repo, {"answer.py": text, "inner.py": inner, "line.toml": line})
    record = open_site(workspace).run()
    assert record.ran.foreign == (f"Python {platform.python_version()} of {other}",)
    (gate,) = [each for each in record.gates if each.name == "reproducible"]
    environment = next(each for each in gate.evidence["items"] if each["name"] == "environment")
    assert environment["pinned"] == "unknown"
    assert f"of {other}, which is not the environment that gangline gave it" in environment["by"]


def test_what_torch_and_the_runtime_start_by_themselves_leaves_the_data_pinned(workspace):
    text = (
        "import torch, platform, subprocess, sys\nfrom gangline.train import Program\nplatform.processor()\n"
        "subprocess.run([sys.executable, '-c', '1'], check=True)\nwith Program() as program:\n"
        "    while program.has_more:\n        program.step(loss=1.0)\n"
        "        if program.save_due:\n            program.save({'weights': b'w'})\n"
    )
    repositories.commit(workspace.repo, {"answer.py": text, "line.toml": repositories.LINE})
    record = open_site(workspace).run()
    assert record.ran.programs == ()
    assert data_item(record)[0] == "yes"


def test_a_module_of_the_work_tree_refuses_the_run_with_its_name_and_file(workspace):
    text = f"import sys\nsys.path.insert(0, {str(workspace.repo)!r} + '/hidden')\nimport stray\n{repositories.PROGRAM}"
    files = {"answer.py": text, "line.toml": repositories.LINE, "hidden/.gitignore": "*"}
    repositories.commit(workspace.repo, files)
    (workspace.repo / "hidden" / "stray.py").write_text("")
    with pytest.raises(ConfigError, match=r"found module stray of .*/hidden/stray\.py"):
        open_site(workspace).run()
    (record,) = workspace.records()
    assert (record.run.exit_code, stage(record, "train").state) == (10, "failed")
    assert stage(record, "publish").state == "skipped"


def test_the_commit_that_is_asked_for_is_trained_though_its_package_is_installed_editable(workspace, monkeypatch):
    line = repositories.LINE.replace('"answer.py"]', '"-m", "pkg"]\npath = ["src"]')
    program = f"from pkg import where\nprint('code of', where)\n{repositories.PROGRAM}"
    files = {"src/pkg/__main__.py": program, "src/pkg/__init__.py": "where = 'commit'\n", "line.toml": line}
    good = repositories.commit(workspace.repo, files)
    repositories.commit(workspace.repo, {"src/pkg/__init__.py": "where = 'work tree'\nraise SystemExit(3)\n"})
    monkeypatch.setenv("PYTHONPATH", str(workspace.repo / "src"))  # where an editable install's .pth leads, and earlier
    record = open_site(workspace).run(commit=good)
    assert record.run.verdict == "passed"
    assert record.ran.elsewhere == ()


def test_a_folder_that_the_layer_has_not_is_not_a_path_of_it(workspace):
    line = repositories.LINE.replace('"answer.py"]', '"answer.py"]\npath = ["lib"]')
    repositories.commit(workspace.repo, {"answer.py": "", "src/a.py": "", "line.toml": line})
    with pytest.raises(ConfigError, match=r"project\.path: .* found no file in 'lib'; its folders: src"):
        workspace.run()


class TestEditable:
    def installed(self, root: Path, source: Path) -> list[Editable]:
        folder = root / "demo_pkg-0.1.dist-info"
        folder.mkdir(parents=True)
        reported = {"url": source.as_uri(), "dir_info": {"editable": True}}
        (folder / "direct_url.json").write_text(json.dumps(reported))
        return list(editable_packages_in(source, [str(root)]))

    def test_a_package_installed_from_the_work_tree_is_found_with_its_modules(self, tmp_path):
        source = tmp_path / "repo"
        (source / "src" / "pkg").mkdir(parents=True)
        (source / "src" / "pkg" / "__init__.py").touch()
        assert self.installed(tmp_path / "site", source) == [Editable("demo-pkg", source, ("pkg",))]
        assert list(editable_packages_in(tmp_path / "other", [str(tmp_path / "site")])) == []

    def test_what_only_the_work_tree_has_is_refused_with_the_key_that_finds_it_in_the_commit(self, tmp_path):
        layer = pack([LayerFile("train.py", b"import pkg.model\n"), LayerFile("src/pkg/__init__.py", b"")])
        editable = Editable("demo-pkg", tmp_path, ("pkg",))
        project = ProjectTable(name="x", command=("python", "train.py"))
        with pytest.raises(ConfigError, match=r'train\.py imports pkg, .*project\.path = \["src"\]'):
            refuse_work_tree(layer, project, [editable])
        refuse_work_tree(layer, replace(project, path=("src",)), [editable])
        refuse_work_tree(layer, project, [replace(editable, modules=("other",))])

    def test_a_program_that_misses_its_module_learns_of_the_editable_package_that_has_it(self, tmp_path):
        editable = Editable("demo-pkg", tmp_path, ("pkg",))
        said = missing_module(["x", "ModuleNotFoundError: No module named 'pkg.model'"], [editable])
        assert said.startswith(f"; pkg.model is of demo-pkg, installed editable from {tmp_path}: runs have the files")
        assert missing_module(["ModuleNotFoundError: No module named 'other'"], [editable]) == ""


class TestBeside:
    """A line in a part of a repository, with files of folders beside it."""

    KEYS = '"answer.py"]\ninclude = ["../../common/**"]\npath = ["../../common"]'
    LINE = repositories.LINE.replace('"answer.py"]', KEYS)

    def commit(self, workspace, line=LINE) -> None:
        program = f"import shared\nassert open('../../common/words.txt').read() == 'words'\n{repositories.PROGRAM}"
        files = {
            "services/model/answer.py": program, "services/model/line.toml": line, "services/other.py": "",
            "common/shared.py": "x = 1\n", "common/words.txt": "words",
        }  # fmt: skip
        repositories.commit(workspace.repo, files)
        workspace.repo = workspace.repo / "services" / "model"

    def test_paths_and_imports_lead_where_they_do_in_a_clone(self, workspace):
        self.commit(workspace)
        record = open_site(workspace).run()
        assert record.run.verdict == "passed"
        assert record.ran.modules["code"] == 2
        assert record.ran.elsewhere == record.ran.reads == record.ran.foreign == ()

    def test_only_what_is_included_comes_along(self, workspace):
        self.commit(workspace)
        repository = Repository.at(workspace.repo)
        project = ProjectTable(name="x", command=("x",), include=("../../common/*.py",))
        layer = code_layer.pack(repository, repository.tree("HEAD"), project)
        assert layer.folder == "services/model"
        with zipfile.ZipFile(io.BytesIO(layer.data)) as archive:
            assert sorted(archive.namelist()) == ["common/shared.py", "services/model/answer.py"]

    def test_what_leads_out_of_the_repository_is_refused(self, workspace):
        self.commit(workspace, self.LINE.replace("../../common/**", "../../../secrets/**"))
        with pytest.raises(
            ConfigError, match=r"project\.include: .*'\.\./\.\./\.\./secrets/\*\*'.* it leads out of it"
        ):
            workspace.run()
