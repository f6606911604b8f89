"""Where the files of a site are, and what is said where this machine does not take one."""

import os
import subprocess

import pytest

from gangline.errors import StorageError, storage_errors
from gangline.spec.config.site import Site, StoreTable
from gangline.storage.site_paths import home, main_folder, store_url


def git(folder, *arguments):
    who = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def main(tmp_path):
    """A repository with a commit."""
    repo = tmp_path / "main"
    repo.mkdir()
    git(repo, "init", "-q")
    git(repo, "commit", "-q", "--allow-empty", "-m", "first")
    return repo


@pytest.mark.parametrize("part", ["", "lines/digits"])
def test_linked_work_trees_have_the_store_of_the_main_one(main, tmp_path, part):
    git(main, "worktree", "add", "-q", "--detach", str(tmp_path / "linked"))
    linked = tmp_path / "linked" / part
    linked.mkdir(parents=True, exist_ok=True)
    assert store_url(linked, Site()) == store_url(main / part, Site()) == f"file:{main / part}/.gangline/store"
    assert home(linked) == main / part / ".gangline"
    assert (main / part / ".gangline" / ".gitignore").exists()
    assert not (linked / ".gangline").exists()
    own = Site(store=StoreTable(url=f"file:{linked}/store"))
    assert store_url(linked, own) == f"file:{linked}/store"


def test_linked_work_trees_of_a_bare_repository_share_a_folder_in_it(main, tmp_path):
    git(tmp_path, "clone", "-q", "--bare", str(main), "bare.git")
    for name in ("a", "b"):
        git(tmp_path / "bare.git", "worktree", "add", "-q", "--detach", str(tmp_path / name))
        assert home(tmp_path / name) == tmp_path / "bare.git" / "gangline" / ".gangline"


def test_a_clone_a_submodule_and_a_folder_without_git_have_their_own(main, tmp_path):
    git(tmp_path, "clone", "-q", str(main), "clone")
    git(main, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(tmp_path / "clone"), "sub")
    for folder in (main, tmp_path / "clone", main / "sub", tmp_path):
        assert main_folder(folder) == folder


def test_file_of_a_stranger_that_points_at_another_repository_shares_nothing_of_it(main, tmp_path):
    git(main, "worktree", "add", "-q", "--detach", str(tmp_path / "linked"))
    own = tmp_path / "stranger"
    (own / "admin").mkdir(parents=True)
    (own / "admin" / "commondir").write_text(f"{main}/.git\n")
    (own / "admin" / "gitdir").write_text(f"{own}/.git\n")
    for admin in (own / "admin", main / ".git" / "worktrees" / "linked"):
        (own / ".git").write_text(f"gitdir: {admin}\n")
        assert main_folder(own) == own


def test_the_very_file_is_named_where_it_is_another(tmp_path):
    with (
        pytest.raises(
            StorageError, match=f"wanted to write {tmp_path}, found: No such file or directory: .*absent/file"
        ),
        storage_errors(tmp_path),
    ):
        (tmp_path / "absent" / "file").write_text("1")


def test_of_a_descriptor_no_number_is_named(tmp_path):
    with pytest.raises(StorageError, match="found: Bad file descriptor; make room"), storage_errors(tmp_path):
        os.fchmod(9999, 0o600)
    with pytest.raises(StorageError, match="found: Is it a number; make room"), storage_errors(tmp_path):
        raise OSError(9, "Is it a number", 9999)
