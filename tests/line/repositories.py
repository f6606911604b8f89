"""Model repositories to drive: a program of a few lines that leaves a course behind, in a git repository of its own."""

import atexit
import json
import os
import shutil
import subprocess
import tempfile
import tomllib
from functools import cache
from pathlib import Path

from gangline.build import code_layer, own_environment
from gangline.line.request.run_request import resolve_request
from gangline.line.stages import model_inspection
from gangline.line.stages.tracked_files import find_pointers
from gangline.spec.config.load import _apply, load_line_text
from gangline.spec.config.site import Site
from gangline.storage import site_paths

WHO = {
    "GIT_AUTHOR_NAME": "tester",
    "GIT_AUTHOR_EMAIL": "tester@localhost",
    "GIT_COMMITTER_NAME": "tester",
    "GIT_COMMITTER_EMAIL": "tester@localhost",
    "GIT_AUTHOR_DATE": "2026-01-01T00:00:00+00:00",
    "GIT_COMMITTER_DATE": "2026-01-01T00:00:00+00:00",
}

LINE = """\
[project]
name = "cheap"
command = ["python", "answer.py"]
exclude = ["*.md"]
[train]
steps = 4
global_batch = 2
ranks = 1
"""

PROGRAM = """\
import json, os, pathlib
out = pathlib.Path(os.environ["GANGLINE_OUT"])
rows = [{"seed": 1, "job": 0, "step": n, "loss": 3.0 - n / 2, "learning_rate": 0.1, "gradient_norm": 1.0,
         "tokens_per_second": 100.0, "step_seconds": 0.01} for n in range(1, 5)]
if os.environ["RANK"] == "0":
    (out / "metrics.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
    (out / "result.json").write_text(json.dumps({"role": "train", "final_step": 4}))
"""

FIRST = {"line.toml": LINE, "answer.py": PROGRAM}
_TEMPLATES = tempfile.mkdtemp(prefix="gangline-repositories-")
"""Repositories of this process that others are copied from; tests may redirect the folder of temporary files."""
atexit.register(shutil.rmtree, _TEMPLATES, ignore_errors=True)

LONG_PROGRAM = """\
import os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
pathlib.Path(os.environ["GANGLINE_OUT"], "began").touch()
while True:
    time.sleep(0.05)
"""


def git(repo: Path, *arguments: str) -> str:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    done = subprocess.run(
        ["git", *arguments], cwd=repo, env=inherited | WHO, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def commit(repo: Path, files: dict[str, str], message: str = "change") -> str:
    """Write `files`, commit them all, return the commit."""
    for name, text in files.items():
        path = repo / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--allow-empty", "--message", message)
    return git(repo, "rev-parse", "HEAD")


def line_with(text: str, *overrides: str) -> str:
    """The text of a line with some keys set, as `--set` sets them, to be committed."""
    plain = tomllib.loads(text)
    for override in overrides:
        _apply(plain, override)
    return "".join(f"{name} = {_toml(value)}\n" for name, value in plain.items())


def _toml(value) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


def make_repository(folder: Path, files: dict[str, str] | None = None) -> Path:
    """Repository with one commit of `files`: a copy of the one that this process made of them first."""
    if folder.exists() and any(folder.iterdir()):
        return _new_repository(folder, files or FIRST)
    shutil.copytree(_template(tuple((files or FIRST).items())), folder, symlinks=True, dirs_exist_ok=True)
    git(folder, "update-index", "--refresh")  # a copy has inodes of its own, which git takes for changes
    return folder


@cache
def _template(files: tuple[tuple[str, str], ...]) -> Path:
    return _new_repository(Path(tempfile.mkdtemp(dir=_TEMPLATES), "repository"), dict(files))


def _new_repository(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder, files, "first")
    return folder


def settle_inventory(repo: Path, devices=(), *, profile=None, **asked) -> None:
    """Answer for the child process that would import torch to look around: two cores, and of a model `profile`."""
    home = site_paths.home(repo.resolve())
    model = _PROGRAM if _is_program(repo, **asked) else _model(repo, **asked)
    kept = model_inspection.inspection_cache_file(model, home)
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(
        json.dumps({"devices": [*devices], "cores": 2, "memory_bytes": 8 << 30, **(profile or {"parameters": None})})
    )


def _is_program(repo: Path, *, commit=None, overrides=()) -> bool:
    """No code of a line that names none is looked at, so git need not be asked for it."""
    line = repo / "line.toml"
    said = "".join((line.read_text(errors="replace"), *overrides)) if line.is_file() else "task"
    return commit is None and "task" not in said and "function" not in said


def _model(repo: Path, *, commit=None, overrides=()) -> model_inspection.ModelSource:
    question = resolve_request(repo, commit=commit, overrides=overrides, strategy=None)
    pointers = find_pointers(question.repository, question.tree, question.line, commit=question.commit)
    layer = code_layer.pack(question.repository, question.tree, question.line.project, placed=pointers.lfs_paths)
    return model_inspection.ModelSource(
        line=question.line, code=layer.data, environment=own_environment.interpreter_digest(), home=question.kept_home
    )


_PROGRAM = model_inspection.ModelSource(line=load_line_text(LINE, file="line.toml"), code=b"", environment="")
SITE = Site()
