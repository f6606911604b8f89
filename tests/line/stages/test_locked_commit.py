"""A commit with a lock, through the line: its ranks run in its own environment, read-only; so says the record."""

import json
import os
import sys
from dataclasses import replace

import pytest
from tests.build.wheels import lock_of, make_wheel
from tests.line import repositories

from gangline.errors import ConfigError
from gangline.launch.sandbox import find_engine
from gangline.launch.sandbox.module_runner import ModuleJob
from gangline.launch.sandbox.process_runner import ProcessRunner
from gangline.line.gangs.podsets import commits_python
from gangline.line.gangs.sandbox import sandbox_of
from gangline.spec.config.site import Site
from gangline.spec.config.site_tables import EnvironmentsTable
from gangline.spec.run_flags import stage
from gangline.storage.objects.blobs import get_blob

SPAM = make_wheel("spam", "1.0", body="def main(): print('a program of the lock')\n", script=True)
LOOK = """\
import json, os, pathlib, shutil, spam, subprocess, sys
from importlib.util import find_spec
place = pathlib.Path(spam.__file__)
try:
    (place.parent / "planted.py").write_text("")
    wrote = True
except OSError:
    wrote = False
pathlib.Path(os.environ["GANGLINE_OUT"], f"seen-{os.environ['RANK']}.json").write_text(json.dumps({
    "spam": spam.VERSION, "python": sys.executable, "venv": os.environ.get("VIRTUAL_ENV"),
    "path": os.environ.get("PYTHONPATH", ""), "which": shutil.which("python"), "wrote": wrote,
    "read_only": bool(os.statvfs(place).f_flag & os.ST_RDONLY), "drivers": find_spec("cattrs") is not None,
    "runtime": find_spec("gangline.train.api.program") is not None,
    "said": subprocess.run(["spam"], capture_output=True, text=True).stdout.strip(),
}))
"""
LINE = repositories.LINE + '[env]\nlock = "lock.txt"\n'
needs_engine = pytest.mark.skipif(
    not find_engine("auto", wide=True).hides, reason="needs bubblewrap: apt-get install bubblewrap"
)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """One environment for all tests of this file."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def locked(workspace, cache, monkeypatch):
    """A workspace with a commit that has a lock; wheels come from a folder."""
    monkeypatch.setenv("GANGLINE_CACHE", str(cache))
    wheels = cache / "wheels"
    wheels.mkdir(exist_ok=True)
    (wheels / SPAM[0]).write_bytes(SPAM[1])
    workspace.site = replace(Site(), environments=EnvironmentsTable(find_links=(str(wheels),)))
    workspace.environ |= {"UV_OFFLINE": "1", "PATH": os.environ["PATH"]}
    files = {"line.toml": LINE, "lock.txt": lock_of(SPAM).decode(), "answer.py": repositories.PROGRAM + LOOK}
    repositories.commit(workspace.repo, files)
    return workspace


def seen(workspace, record):
    return json.loads(workspace.store.get(f"{record.gang_prefix}/seen-0.json").data)


def test_ranks_run_in_what_the_lock_says_and_the_record_says_so(locked, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", "") + ":/of/the/driver")
    record = locked.run()
    found, outputs = seen(locked, record), stage(record, "build").outputs
    assert found["spam"] == "1.0"
    assert found["python"] == found["which"] == outputs["python"] == commits_python(record)
    assert outputs["python"].startswith(found["venv"])
    assert "/of/the/driver" not in found["path"]
    assert (found["drivers"], found["runtime"]) == (False, True)
    assert found["said"] == "a program of the lock"
    assert outputs["lock"] == "lock.txt"
    packages = json.loads(get_blob(locked.store, outputs["packages"]))
    assert packages["spam"] == "1.0"
    assert outputs["runtime"].keys() == packages.keys() - {"spam"}
    assert record.inputs.environment in outputs["python"]
    assert "lock.txt: 1 package" in stage(record, "build").message
    (gate,) = [each for each in record.gates if each.name == "reproducible"]
    environment = next(each for each in gate.evidence["items"] if each["name"] == "environment")
    assert (environment["pinned"], record.ran.foreign, record.ran.packages["spam"]) == ("yes", (), "1.0"), environment


@needs_engine
@pytest.mark.row("P8")
def test_a_gang_cannot_write_to_the_environment_it_runs_in(locked):
    found = seen(locked, locked.run())
    assert (found["wrote"], found["read_only"]) == (False, True)


def test_code_that_runs_once_runs_in_it_too(locked):
    record = locked.run(until="build")
    runner = ProcessRunner(lambda trust: sandbox_of(locked.repo, trust, site=locked.site, environ=locked.environ))
    code = b"PK\x05\x06" + bytes(18)
    job = ModuleJob(module="spam.__init__", code=code, seconds=60, trust="own", python=commits_python(record))
    assert runner.run(job).exit_code == 0
    assert runner.run(replace(job, python=None)).exit_code == 1, f"{sys.executable} has no spam"


def test_an_environment_that_was_deleted_since_is_named(locked):
    record = locked.run(until="build")
    build = stage(record, "build")
    gone = replace(build, outputs={**build.outputs, "python": "/nowhere/bin/python"})
    record = replace(record, stages={**record.stages, "build": gone})
    with pytest.raises(ConfigError, match="run --again installs it again"):
        commits_python(record)


def test_without_a_lock_the_build_says_that_the_environment_is_not_locked(workspace):
    record = workspace.run(until="build")
    assert "environment not locked" in stage(record, "build").message
    assert stage(record, "build").outputs["lock"] is None
    assert commits_python(record) is None
