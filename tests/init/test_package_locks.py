"""The lock that is proposed, and what is said where there is none: a command that works."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.build.wheels import make_wheel

from gangline.init.package_locks import guess_lock
from gangline.spec.config.lock import check_lock

HASHED = f"numpy==2.0.0 --hash=sha256:{'a' * 64}\n".encode()
DEMANDED = b"spam\n"
PROJECT = b'[project]\nname = "x"\nversion = "1"\ndependencies = ["spam"]\n'
CONDA = "pip list --format freeze | uv pip compile --generate-hashes -"
EXPORT = (
    "export --output requirements.txt writes one of poetry.lock (poetry-plugin-export); git add it, and in [env]"
    ' lock = "requirements.txt"'
)
THEN = '-o requirements.lock, git add requirements.lock, and in [env] lock = "requirements.lock"'


def guess(files, **more):
    return guess_lock(files, tracked=more.pop("tracked", files.keys()), **more)


def test_the_first_lock_that_can_be_installed_is_taken():
    assert guess({"requirements.txt": HASHED, "pylock.dev.toml": b"no = "}).path == "requirements.txt"
    assert guess({"lock.txt": HASHED, "requirements.txt": DEMANDED}).path == "lock.txt"
    assert guess({"uv.lock": b"version = 1\n"}) == guess_lock({"uv.lock": b"version = 1\n"}, tracked=())
    assert guess({"sub/uv.lock": b"version = 1\n"}).path is None


def test_a_lock_with_a_line_that_no_run_takes_is_named_with_what_works():
    found = guess({"requirements.txt": b"--index-url https://me:word@a.example\r\n" + HASHED})
    (note,) = found.notes
    assert note.startswith("no run can install requirements.txt: requirements.txt:1: wanted NAME==VERSION")
    assert "found the option --index-url; delete the line: wheels come from the indexes of the site" in note
    assert "no lock" not in note
    assert "word" not in note


def test_a_lock_that_is_not_committed_is_not_called_no_lock():
    found = guess({"requirements.txt": DEMANDED}, untracked={"notes.txt": b"x", "requirements-lock.txt": HASHED})
    (note,) = found.notes
    assert note.startswith("requirements-lock.txt is not committed: git add requirements-lock.txt, and in [env] lock =")


@pytest.mark.parametrize(
    ("files", "command"),
    [
        ({"requirements.txt": DEMANDED, "pyproject.toml": PROJECT},
         f"uv pip compile --generate-hashes requirements.txt {THEN}"),
        ({"requirements.txt": DEMANDED, "requirements-training.txt": DEMANDED},
         f"uv pip compile --generate-hashes requirements-training.txt {THEN}"),
        ({"pyproject.toml": PROJECT}, f"uv pip compile --generate-hashes pyproject.toml {THEN}"),
        ({"pyproject.toml": b"[tool.ruff]\n", "setup.py": b""}, f"uv pip compile --generate-hashes setup.py {THEN}"),
        ({"pyproject.toml": b"[tool.ruff]\n"},
         f"list what it imports in requirements.in, then uv pip compile --generate-hashes requirements.in {THEN}"),
        ({"environment.yml": b"name: my-env\r\ndependencies: [numpy]\r\n"},
         f"of conda's environment.yml, conda run -n my-env {CONDA} {THEN}"),
        ({"poetry.lock": b"", "pyproject.toml": PROJECT}, f"poetry {EXPORT}"),
    ],
)  # fmt: skip
def test_without_a_lock_the_whole_command_is_given(files, command):
    assert guess(files).notes == (f"no lock of packages: {command}",)


@pytest.mark.parametrize("files", [{"requirements.txt": DEMANDED}, {"pyproject.toml": PROJECT}])
@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_the_command_makes_a_lock_that_is_taken(files, ending, tmp_path):
    uv = Path(sys.executable).with_name("uv")
    name, data = make_wheel("spam", "1.0")
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / name).write_bytes(data)
    for path, text in files.items():
        (tmp_path / path).write_bytes(text.replace(b"\n", ending))
    words = guess(files).notes[0].removeprefix("no lock of packages: ").partition(",")[0].split()
    assert words.pop(0) == "uv"
    subprocess.run(
        [uv, *words, "--offline", "--no-index", "--find-links", "wheels"], cwd=tmp_path, check=True, capture_output=True
    )
    made = (tmp_path / "requirements.lock").read_bytes()
    check_lock(made, file="requirements.lock")
    assert guess(files | {"requirements.lock": made}).path == "requirements.lock"
    shutil.rmtree(tmp_path / "wheels")


CONFLICTS = b'[tool.uv]\nconflicts = [[{ extra = "cpu" }, { extra = "gpu" }]]\n'


def test_extras_that_exclude_each_other_are_named_and_none_is_proposed():
    found = guess({"uv.lock": b"version = 1\n", "pyproject.toml": PROJECT + CONFLICTS})
    assert found.path == "uv.lock"
    (note,) = found.notes
    assert note.startswith('uv.lock has packages of cpu or gpu, which exclude each other: in [env] extras = ["cpu"]')
    assert guess({"uv.lock": b"version = 1\n", "pyproject.toml": b"[tool]\nuv = 3\n"}).notes == ()
