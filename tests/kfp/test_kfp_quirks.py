"""Traps of kfp 2.17.3 that our code goes around: each test says what can be simplified once its trap is gone."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

HEAD = """\
import json, os, sys
from kfp import dsl, local

@dsl.component(base_image="python:3.11-slim", install_kfp_package=False)
def show(value: str, numbers: list, path: str) -> str:
    import json, os
    with open(path, "w") as file:
        json.dump({"value": value, "numbers": numbers, "leaked": os.environ.get("CANARY")}, file)
    return value

@dsl.component(base_image="python:3.11-slim", install_kfp_package=False)
def fail() -> str:
    raise SystemExit(7)

@dsl.component(base_image="python:3.11-slim", install_kfp_package=False)
def wait(path: str):
    import os, time
    with open(path + ".part", "w") as file:
        file.write(str(os.getpid()))
    os.rename(path + ".part", path)
    time.sleep(120)

out = sys.argv[1]
local.init(local.SubprocessRunner(use_venv=False), pipeline_root=out + "/outputs", **SETTINGS)
"""


def play(tmp_path: Path, body: str, settings: str = "{}", **environ: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, program(tmp_path, body, settings), str(tmp_path)],
        env=os.environ | environ, capture_output=True, text=True, check=False,
    )  # fmt: skip


def program(tmp_path: Path, body: str, settings: str = "{}") -> Path:
    """A file, because kfp reads the source of components."""
    path = tmp_path / "program.py"
    path.write_text(HEAD.replace("**SETTINGS", f"**{settings}") + body)
    return path


SHOWN = """
show(value="x", numbers=[1, 2], path=out + "/seen")

@dsl.pipeline(name="quotes")
def quotes(text: str):
    first = show(value=text, numbers=[], path=out + "/first")
    with dsl.If(first.output == "it's"):
        show(value="taken", numbers=[], path=out + "/taken")
quotes(text="it's")

@dsl.pipeline(name="limits")
def limits():
    show(value="x", numbers=[], path=out + "/limited").set_memory_limit("1Ki")
limits()

@dsl.container_component
def other():
    return dsl.ContainerSpec(image="python:3.11-slim", command=["true"])
try:
    other()
except Exception as error:
    print("CONTAINER", error)
"""


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Its folder, and what it wrote, of one program under the usual settings."""
    folder = tmp_path_factory.mktemp("shown")
    done = play(folder, SHOWN, CANARY="sings")
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_numbers_in_lists_become_floats(shown):
    assert '"numbers": [1.0, 2.0]' in (shown[0] / "seen").read_text(), "config could be a dictionary"


def test_the_environment_of_the_host_leaks_into_tasks(shown):
    assert '"leaked": "sings"' in (shown[0] / "seen").read_text(), "the child's environment need not be scrubbed"


def test_a_quote_makes_a_condition_false(shown):
    assert (shown[0] / "first").exists()
    assert not (shown[0] / "taken").exists(), "conditions may compare strings"


def test_limits_mean_nothing_to_the_local_runner(shown):
    assert (shown[0] / "limited").exists(), "limits hold locally, test them by running"


def test_a_container_component_is_refused_without_docker(shown):
    assert "only supports running Lightweight Python Components" in shown[1], "components may be containers"


def test_a_users_workspace_is_deleted(tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    body = """
@dsl.pipeline(name="x")
def x():
    show(value="x", numbers=[], path=out + "/seen")
x()
"""
    play(tmp_path, body, settings=repr({"workspace_root": str(mine)}))
    assert not mine.exists(), "a workspace could be the user's"


def test_an_s3_root_becomes_a_folder(tmp_path):
    body = """
os.chdir(out)
local.init(local.SubprocessRunner(use_venv=False), pipeline_root="s3:bucket/prefix")
show(value="x", numbers=[], path=out + "/seen")
"""
    play(tmp_path, body)
    assert (tmp_path / "s3:bucket").is_dir(), "outputs of the local runner could lie in the store"


def test_without_raising_a_failure_is_an_empty_answer(tmp_path):
    body = """
@dsl.pipeline(name="x")
def x() -> str:
    return fail().output
task = x()
print("OUTPUTS", task._outputs)
"""
    done = play(tmp_path, body, settings='{"raise_on_error": False}')
    assert done.returncode == 0
    assert "OUTPUTS {}" in done.stdout, "raise_on_error=False tells failures by now"


def test_a_retry_is_slept_for_even_though_the_failure_is_the_last_word(tmp_path):
    body = """
@dsl.pipeline(name="x")
def x():
    fail().set_retry(1, backoff_duration="1s")
x()
"""
    began = time.monotonic()
    done = play(tmp_path, body)
    assert done.returncode
    assert (done.stdout + done.stderr).count("Executing task") == 2, "local pipelines could carry their retries"
    assert time.monotonic() - began > 1


def test_sigterm_orphans_tasks(tmp_path):
    command = [sys.executable, program(tmp_path, 'wait(path=out + "/task")'), str(tmp_path)]
    runner = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (tmp_path / "task").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    task = int((tmp_path / "task").read_text())
    runner.terminate()
    runner.wait(30)
    try:
        os.kill(task, 0)
    except ProcessLookupError:
        pytest.fail("a runner that is stopped stops its tasks: the process group is not needed")
    os.kill(task, signal.SIGKILL)
