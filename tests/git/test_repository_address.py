"""One repository has one address, whatever its URL looks like and wherever it was cloned; two have two."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.line import repositories
from tests.line.repositories import git

from gangline.git.repository_address import SETTING, RepositoryAddress, address_of, read_address

segments = st.text("abcXYZ0-_", min_size=1, max_size=8)


@given(owner=segments, name=segments, port=st.integers(1, 65535), end=st.sampled_from(["", "/", ".git", ".git/"]))
def test_https_ssh_and_git_urls_of_one_repository_have_one_address(owner, name, port, end):
    path = f"{owner}/{name}{end}"
    urls = [
        f"https://forge.example/{path}", f"https://forge.example:{port}/{path}", f"http://Forge.Example//{path}",
        f"https://token:secret@forge.example/{path}", f"ssh://git@forge.example:{port}/{path}",
        f"git@forge.example:{path}", f"git@forge.example:/{path}", f"git://forge.example/{path}",
        f"forge.example/{owner}/{name}",
    ]  # fmt: skip
    assert {address_of(url) for url in urls} == {f"forge.example/{owner}/{name}"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://forge.example/acme/model", "https://forge.example/alex/model"),
        ("https://forge.example/acme/model", "https://other.example/acme/model"),
        ("https://forge.example/acme/model", "https://forge.example/acme/Model"),  # a server may tell them apart
        ("alex@host:model.git", "kim@host:model.git"),  # each in the home of that person
        ("/srv/git/model.git", "/srv/git/model"),
        ("git@forge.example:acme/model", "/forge.example/acme/model"),
    ],
)
def test_two_repositories_have_two_addresses(one, other):
    assert address_of(one) != address_of(other)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("git@github.com:Acme/Model.git", "github.com/acme/model"),  # GitHub takes the two for one
        ("alex@host:/srv/git/model.git", "host/srv/git/model"),  # an absolute path is nobody's home
        ("ssh://git@[::1]:2222/acme/model", "::1/acme/model"),
        ("file:///srv/git/model%20a.git", "/srv/git/model a.git"),
        ("https://[bad/acme", "https://[bad/acme"),
    ],
)
def test_an_address_is_the_host_and_the_path(url, address):
    assert address_of(url) == address
    assert address_of(address_of(url)) == address


@pytest.fixture
def repo(tmp_path):
    return repositories.make_repository(tmp_path / "repo")


def clone(source: Path, target: Path, *more: str) -> Path:
    git(source.parent, "clone", "--quiet", *more, str(source), str(target))
    return target


def test_a_repository_without_a_remote_is_its_folder(repo):
    assert read_address(repo) == RepositoryAddress(str(repo), (repo,))
    assert read_address(repo.parent) is None


def test_a_clone_of_a_folder_has_the_address_of_that_folder(repo, tmp_path):
    bare = clone(repo, tmp_path / "bare.git", "--bare")
    git(bare, "remote", "remove", "origin")
    first = clone(bare, tmp_path / "first")
    second = clone(first, tmp_path / "second")
    git(second, "remote", "set-url", "origin", "../first")
    git(first, "remote", "set-url", "origin", str(tmp_path / "bare"))  # git finds bare.git there
    assert {read_address(each).text for each in (bare, first, second)} == {str(bare)}
    assert read_address(second).places == (second, first, bare)


def test_a_clone_of_a_clone_is_of_the_server_that_the_first_is_of(repo, tmp_path):
    git(repo, "remote", "add", "origin", "git@forge.example:acme/model.git")
    found = read_address(clone(repo, tmp_path / "clone"))
    assert found.text == "forge.example/acme/model"
    assert found.names == {"forge.example/acme/model", str(repo), str(tmp_path / "clone")}


def test_a_linked_work_tree_and_a_folder_of_a_repository_have_its_address(repo, tmp_path):
    git(repo, "worktree", "add", "--quiet", str(tmp_path / "tree"), "-b", "side")
    (repo / "sub").mkdir()
    (tmp_path / "link").symlink_to(repo)
    for folder in (tmp_path / "tree", repo / "sub", tmp_path / "link"):
        assert read_address(folder).text == str(repo)


def test_a_setting_of_the_clone_goes_before_its_remote(repo):
    git(repo, "remote", "add", "origin", "/nowhere/mirror.git")
    assert read_address(repo).text == "/nowhere/mirror.git"
    git(repo, "config", SETTING, "ssh://git@forge.example/acme/model")
    assert read_address(repo).text == "forge.example/acme/model"


def test_a_short_form_of_the_users_configuration_is_expanded(repo):
    git(repo, "config", "url.https://forge.example/.insteadOf", "ours:")
    git(repo, "remote", "add", "origin", "ours:acme/model")
    assert read_address(repo).text == "forge.example/acme/model"


def test_two_folders_that_are_each_others_remote_have_an_address(repo, tmp_path):
    other = clone(repo, tmp_path / "other")
    git(repo, "remote", "add", "origin", str(other))
    assert read_address(repo).text in {str(repo), str(other)}


def test_a_store_inside_of_a_repository_is_its_own_for_its_clones_and_work_trees_too(repo, tmp_path):
    found = read_address(clone(repo, tmp_path / "clone"))
    assert found.holds(f"file:{repo}/.gangline/store")
    assert found.holds(f"file:{tmp_path}/clone/.gangline/store")
    assert not found.holds(f"file:{tmp_path}/store")
    assert not found.holds("s3://bucket/store")
