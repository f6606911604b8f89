"""What a failed program missed: a variable that only the shell has, a module that its environment lacks."""

import pytest
from tests.line import repositories

from gangline.errors import TrainingError
from gangline.line.gangs.missed_names import missing_package, missing_variable

ENVIRON = {"MY_DATA": "/data", "MY_TOKEN": "t0p", "EMPTY": "", "LANG": "C"}


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
