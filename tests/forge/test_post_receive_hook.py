"""The hook in a bare repository: ours is renewed, another one is kept or left alone."""

import subprocess

import pytest
from tests.line import repositories
from tests.line.repositories import git

from gangline.errors import ConfigError, UsageError
from gangline.forge.bare_repository import BEFORE, install_hook


@pytest.fixture
def bare(tmp_path):
    repo = tmp_path / "model's.git"
    repo.mkdir()
    git(repo, "init", "--quiet", "--bare", "--initial-branch=main")
    return repo


def push_to(bare, tmp_path):
    """What the pusher reads."""
    repo = repositories.make_repository(tmp_path / "work")
    done = subprocess.run(["git", "push", str(bare), "main"], cwd=repo, capture_output=True, text=True, check=True)
    return repo, done.stderr


def test_the_hook_gets_the_refs_of_a_push(bare, tmp_path):
    install_hook(bare, ["tee", f"{tmp_path}/a file's name"], chain=False)
    repo, said = push_to(bare, tmp_path)
    sha = git(repo, "rev-parse", "HEAD")
    assert f"remote: {'0' * 40} {sha} refs/heads/main" in said
    assert (tmp_path / "a file's name").read_text() == f"{'0' * 40} {sha} refs/heads/main\n"


def test_a_hook_of_ours_is_renewed(bare):
    install_hook(bare, ["true"], chain=False)
    path = install_hook(bare, ["cat"], chain=False)
    assert path.read_text().endswith("exec cat\n")
    assert not path.with_name(BEFORE).exists()


def test_a_foreign_hook_is_left_alone(bare):
    foreign = bare / "hooks" / "post-receive"
    foreign.parent.mkdir(exist_ok=True)
    foreign.write_text("#!/bin/sh\necho mine\n")
    with pytest.raises(ConfigError, match=r"--chain keeps it .* call gangline from it: cat"):
        install_hook(bare, ["cat"], chain=False)
    assert foreign.read_text() == "#!/bin/sh\necho mine\n"


def test_a_foreign_hook_is_chained_and_both_get_the_refs(bare, tmp_path):
    foreign = bare / "hooks" / "post-receive"
    foreign.parent.mkdir(exist_ok=True)
    foreign.write_text("#!/bin/sh\nsed 's/^/mine /'\n")
    foreign.chmod(0o755)
    install_hook(bare, ["cat"], chain=True)
    install_hook(bare, ["cat"], chain=False)
    _, said = push_to(bare, tmp_path)
    assert said.count("refs/heads/main") == 2
    assert "remote: mine 0000" in said


def test_only_a_bare_repository_gets_a_hook(tmp_path):
    repo = repositories.make_repository(tmp_path / "work")
    for path in (repo, tmp_path / "none", tmp_path):
        with pytest.raises(UsageError, match="wanted a bare"):
            install_hook(path, ["cat"], chain=False)
