"""A commit that locks another Python and torch than gangline runs in, through the whole line: plan to published model.

`GANGLINE_TEST_LOCKED="3.12 2.11"` names them; the machine has that Python, and an index the packages.
"""

import os
import platform
import re
import shutil
import sys
from pathlib import Path

import pytest
from tests.line import repositories
from tests.line.stages.test_whole_line import BYTEGPT, SMALL

from gangline.line.gangs.podsets import commits_python
from gangline.line.stages.run_line import run_line
from gangline.spec.record import STAGES
from gangline.spec.run_flags import stage

ROOT = Path(__file__).resolve().parents[3]
OF_A_TASK = re.compile(
    r"(torch|triton|cuda-.*|nvidia-.*|numpy|filelock|fsspec|jinja2|markupsafe|mpmath|networkx|setuptools|sympy"
    r"|typing-extensions)=="
)
"""What a commit that trains with torch locks: torch, and all that it imports."""
pytestmark = [
    pytest.mark.versions,
    pytest.mark.skipif("GANGLINE_TEST_LOCKED" not in os.environ, reason="make test-versions says which Python to lock"),
]


def lock_of(torch):
    """Hashed requirements for `torch`, of the locks of this repository."""
    sys.path.insert(0, str(ROOT / "requirements"))
    try:
        import install
    finally:
        sys.path.pop(0)
    found = install.together(*map(install.entries, install.locks_of("run", torch)))
    return "".join(entry for entry in found if OF_A_TASK.match(entry))


@pytest.mark.timeout(1800)
def test_a_commit_of_another_python_and_torch_is_trained_proved_and_published(workspace, monkeypatch):
    python, torch = os.environ["GANGLINE_TEST_LOCKED"].split()
    assert not platform.python_version().startswith(f"{python}.")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    shutil.copytree(BYTEGPT, workspace.repo, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    locked = ['env.lock="lock.txt"', f'env.python="{python}"']
    line = repositories.line_with((BYTEGPT / "line.toml").read_text(), *SMALL, *locked)
    text = "the quick brown fox jumps over the lazy dog\n" * 400
    repositories.commit(workspace.repo, {"src/text.py": text, "line.toml": line, "lock.txt": lock_of(torch)})
    environ = {**os.environ, "XDG_CONFIG_HOME": workspace.environ["XDG_CONFIG_HOME"]}  # keys of its own, uv's own cache
    record = run_line(workspace.repo, site=workspace.site, environ=environ, observer=workspace.seen)

    assert record.run.verdict == "passed"
    assert {stage(record, name).state for name in STAGES} == {"done"}
    assert (record.plan.name, record.proof.plan) == ("ddp-2", "fsdp-2")
    assert record.proof.tensors_equal == record.proof.tensors > 10
    assert record.ran.python.startswith(f"{python}.")
    assert record.ran.packages["torch"].startswith(f"{torch}.")
    assert Path(commits_python(record)).resolve().name == f"python{python}"
