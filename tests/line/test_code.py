"""The code layer: equal trees give equal bytes, and nothing but regular files gets in."""

import io
import tarfile

import pytest
from tests.line import repositories

from gangline.errors import ConfigError
from gangline.line import code
from gangline.line.git import Repository
from gangline.spec.line import ProjectTable
from gangline.storage.layer import unpack

FILES = {"model.py": "a", "pkg/b.py": "bb", "docs/guide.txt": "d", "README.md": "r", "line.toml": repositories.LINE}


def project(**fields):
    return ProjectTable(name="cheap", command=("python", "model.py"), **fields)


@pytest.fixture
def repo(tmp_path):
    return Repository.at(repositories.make_repository(tmp_path / "repo", FILES))


def names(layer):
    with tarfile.open(fileobj=io.BytesIO(layer.tar)) as tar:
        return tar.getnames()


def pack(repo, **fields):
    return code.pack(repo, repo.tree("HEAD"), project(**fields))


def test_equal_trees_of_two_repositories_give_equal_bytes(repo, tmp_path):
    other = Repository.at(repositories.make_repository(tmp_path / "other", FILES))
    repositories.commit(other.root, {}, "another message")
    assert pack(repo).tar == pack(other).tar


def test_documents_and_the_line_itself_stay_out(repo):
    assert names(pack(repo)) == ["model.py", "pkg/b.py"]


def test_include_and_exclude_choose(repo):
    assert names(pack(repo, include=("pkg/**",))) == ["pkg/b.py"]
    assert names(pack(repo, exclude=("pkg/**",))) == ["README.md", "docs/guide.txt", "model.py"]


def test_a_changed_line_leaves_the_layer_as_it_was(repo):
    before = pack(repo).tar
    repositories.commit(repo.root, {"line.toml": repositories.LINE + "seed = 2\n"})
    assert pack(repo).tar == before


def test_links_are_left_out_and_named(repo):
    (repo.root / "out").symlink_to("/etc/passwd")
    repositories.commit(repo.root, {})
    layer = pack(repo)
    assert layer.links == ("out",)
    assert "out" not in names(layer)


def test_the_layer_unpacks_with_its_executables(repo, tmp_path):
    (repo.root / "run.sh").write_text("#!/bin/sh\n")
    (repo.root / "run.sh").chmod(0o755)
    repositories.commit(repo.root, {})
    assert unpack(pack(repo).tar, tmp_path / "code") == 3
    assert (tmp_path / "code" / "run.sh").stat().st_mode & 0o111
    assert (tmp_path / "code" / "pkg" / "b.py").read_text() == "bb"


def test_nothing_left_is_said_so(repo):
    with pytest.raises(ConfigError, match="leave no file"):
        pack(repo, include=("nothing/**",))


def test_too_large_names_the_largest(repo, monkeypatch):
    monkeypatch.setattr(code, "MAX_BYTES", 2)
    with pytest.raises(ConfigError, match=r"pkg/b\.py"):
        pack(repo)
