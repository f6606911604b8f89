"""A bare repository with our hook, real pushes to it, and what the pusher reads."""

import os
import subprocess
import sys
import time

import pytest
from tests.line import repositories
from tests.line.repositories import commit, git

from gangline.forge.bare_repository import MAX_RUNS
from gangline.line.record.runs import list_runs
from gangline.storage.open import open_store

pytestmark = pytest.mark.long


@pytest.fixture
def bare(tmp_path, monkeypatch):
    for name in ("GANGLINE_SITE", "GANGLINE_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    repo = tmp_path / "model.git"
    repo.mkdir()
    git(repo, "init", "--quiet", "--bare", "--initial-branch=main")
    called("hook", "install", str(repo))
    return repo


@pytest.fixture
def work(tmp_path):
    return repositories.make_repository(tmp_path / "work")


def called(*arguments, **options):
    command = [sys.executable, "-m", "gangline", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def push(work, bare, *refspecs):
    """What the pusher reads of us; the environment of a hook within a hook must not matter."""
    done = subprocess.run(
        ["git", "push", "--quiet", str(bare), *refspecs], cwd=work, capture_output=True, text=True, check=True
    )
    return [line.removeprefix("remote: ").strip() for line in done.stderr.splitlines() if "gangline:" in line]


def ended(bare, run):
    """The record, once the detached driver has finished."""
    store = open_store(f"file:{bare}/.gangline/store")
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        record = next((each for each in list_runs(store) if each.run.id == run), None)
        if record and record.run.state == "ended" and record.stages["report"].state == "done":
            return record
        time.sleep(0.2)
    raise AssertionError(f"{run} has not ended")


def test_a_push_starts_a_run_that_outlives_it(bare, work):
    (said,) = push(work, bare, "main")
    run = said.split()[2]
    assert said == f"gangline: run {run} started; gangline follow {run} --repo {bare}"
    record = ended(bare, run)
    assert (record.run.verdict, record.commit.branch) == ("passed", "main")
    assert record.commit.sha == git(work, "rev-parse", "HEAD")
    assert record.commit.patch is None


def test_tags_and_deleted_branches_start_nothing(bare, work):
    git(work, "branch", "short")
    git(bare, "config", "receive.denyDeletes", "false")
    hook = bare / "hooks" / "post-receive"
    quiet = hook.read_text()
    hook.unlink()
    push(work, bare, "short")
    hook.write_text(quiet)
    hook.chmod(0o755)
    git(work, "tag", "v1")
    assert push(work, bare, "v1") == []
    assert push(work, bare, ":short") == []


def test_a_commit_without_a_line_says_so_and_the_push_is_kept(bare, work):
    git(work, "rm", "--quiet", "line.toml")
    sha = commit(work, {})
    assert push(work, bare, "main") == ["gangline: no run of main: the commit has no line.toml"]
    assert git(bare, "rev-parse", "main") == sha


def test_a_line_that_does_not_hold_says_so_and_the_push_is_kept(bare, work):
    commit(work, {"line.toml": "[project]\nname = 7\n"})
    (said,) = push(work, bare, "main")
    assert said.startswith("gangline: no run of main: line.toml: ")


def test_a_branch_that_the_triggers_leave_out_starts_nothing(bare, work):
    commit(work, {"line.toml": repositories.LINE + '[trigger]\nbranches = ["main"]\n'})
    git(work, "checkout", "--quiet", "-b", "$(touch${IFS}evil);`id`")
    (said,) = push(work, bare, "$(touch${IFS}evil);`id`")
    assert said == "gangline: no run of $(touch${IFS}evil);`id`: trigger.branches leaves $(touch${IFS}evil);`id` out"


@pytest.mark.row("P5")
def test_a_branch_called_head_starts_nothing_and_main_stays_where_it_is(bare, work):
    (said,) = push(work, bare, "main")
    ended(bare, said.split()[2])
    main = git(work, "rev-parse", "HEAD")
    git(work, "checkout", "--quiet", "-b", "evil")
    evil = commit(work, {"x": "1"})
    (said,) = push(work, bare, "evil:refs/heads/HEAD")
    assert said.startswith("gangline: no run of HEAD: wanted a name that git takes for a branch")
    (said,) = push(work, bare, "evil")
    record = ended(bare, said.split()[2])
    assert (record.commit.sha, record.commit.protected) == (evil, False)
    clone = next((bare / ".gangline" / "hook").rglob(f"commits/{evil}"))
    assert git(clone, "rev-parse", "refs/remotes/origin/main") == main


@pytest.mark.parametrize("name", ["feature/ü#1", "a=b+c,(d)", "it's;$(x)"])
def test_a_branch_of_any_name_that_git_takes_is_built_and_recorded_under_it(bare, work, name):
    push(work, bare, "main")
    git(work, "checkout", "--quiet", "-b", name)
    commit(work, {"x": "1"})
    (said,) = push(work, bare, name)
    record = ended(bare, said.split()[2])
    assert (record.commit.branch, record.run.verdict) == (name, "passed")


def test_a_push_that_is_not_accepted_yet_is_not_a_push(tmp_path):
    done = called("hook", "post-receive", env=os.environ | {"GIT_QUARANTINE_PATH": "x"}, cwd=tmp_path, input="")
    assert done.returncode == 2
    assert "not accepted yet" in done.stderr


def test_a_hundred_new_branches_start_a_few_runs(bare, work):
    git(work, "rm", "--quiet", "line.toml")  # each says so, at once
    for number in range(100):
        commit(work, {"n.txt": f"{number}\n"})
        git(work, "branch", f"b{number}")
    said = push(work, bare, "--all")
    assert sum("no line.toml" in line for line in said) == MAX_RUNS
    assert said[-1].startswith(f"gangline: {100 - MAX_RUNS} more branches start no run now; their next push does")
