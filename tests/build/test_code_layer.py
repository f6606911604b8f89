"""The code layer: equal trees give equal bytes, and nothing but regular files gets in."""

import io
import os
import subprocess
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.line import repositories

from gangline.build import code_layer
from gangline.build.code_layer import SymlinkResolver
from gangline.errors import ConfigError
from gangline.git.repository import Repository
from gangline.spec.config.line import ProjectTable
from gangline.storage.objects import code_layer as layer
from gangline.storage.objects.code_layer import unpack

FILES = {"model.py": "a", "pkg/b.py": "bb", "docs/guide.txt": "d", "README.md": "r", "line.toml": repositories.LINE}


def project(**fields):
    return ProjectTable(name="cheap", command=("python", "model.py"), **fields)


@pytest.fixture
def repo(tmp_path):
    return Repository.at(repositories.make_repository(tmp_path / "repo", FILES))


def contents(packed):
    with zipfile.ZipFile(io.BytesIO(packed.data)) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def pack(repo, **fields):
    return code_layer.pack(repo, repo.tree("HEAD"), project(**fields))


def link(repo, path, target):
    place = repo.root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)
    repositories.commit(repo.root, {})


def test_equal_trees_of_two_repositories_give_equal_bytes(repo, tmp_path):
    other = Repository.at(repositories.make_repository(tmp_path / "other", FILES))
    repositories.commit(other.root, {}, "another message")
    assert pack(repo).data == pack(other).data


def test_all_that_is_tracked_but_the_line_itself_is_in_the_layer(repo):
    repositories.commit(repo.root, {".gitignore": "out/", ".gangline/made.txt": "1"})
    packed = pack(repo)
    assert list(contents(packed)) == [".gitignore", "README.md", "docs/guide.txt", "model.py", "pkg/b.py"]
    assert (str(packed.left_out), packed.left_out.paths) == ("", ())


def test_include_and_exclude_choose_and_what_they_leave_out_is_counted(repo):
    included = pack(repo, include=("pkg/**",))
    assert list(contents(included)) == ["pkg/b.py"]
    assert str(included.left_out) == "3 tracked files are left out by project.include, 3 B"
    excluded = pack(repo, exclude=("docs/**", "*.md", "pkg/nothing"))
    assert list(contents(excluded)) == ["model.py", "pkg/b.py"]
    assert excluded.left_out.paths == ("README.md", "docs/guide.txt")
    assert str(excluded.left_out) == "2 tracked files are left out by project.exclude, 2 B"
    assert str(pack(repo, include=("**",), exclude=("docs/**",)).left_out) == (
        "1 tracked file is left out by project.include and project.exclude, 1 B"
    )


def test_of_a_line_in_a_folder_files_of_that_folder_count_alone(repo):
    repositories.commit(repo.root, {"service/run.py": "run", "service/notes.md": "n", "common/a.py": "a"})
    line = Repository.at(repo.root / "service")
    assert pack(line, include=("**", "../common/**"), exclude=("*.md",)).left_out.paths == ("notes.md",)


def test_a_changed_line_leaves_the_layer_as_it_was(repo):
    before = pack(repo).data
    repositories.commit(repo.root, {"line.toml": repositories.LINE + "seed = 2\n"})
    assert pack(repo).data == before


def test_a_link_inside_the_tree_becomes_a_copy_and_is_named(repo):
    link(repo, "pkg/model.py", "../model.py")
    packed = pack(repo)
    assert packed.links == ("pkg/model.py",)
    assert contents(packed)["pkg/model.py"] == "a"


def test_a_link_to_a_folder_becomes_copies_of_what_it_holds(repo):
    link(repo, "vendor/lib", "../pkg")
    assert contents(pack(repo))["vendor/lib/b.py"] == "bb"


def test_a_link_to_what_the_layer_leaves_out_still_has_its_content(repo):
    link(repo, "guide.txt", "docs/guide.txt")
    found = contents(pack(repo, exclude=("docs/**",)))
    assert found["guide.txt"] == "d"
    assert "docs/guide.txt" not in found


@pytest.mark.parametrize(
    ("path", "target", "said"),
    [
        ("out", "/etc/passwd", "out of the repository"),
        ("pkg/out", "../../secret", "out of the repository"),
        ("gone", "nothing.py", "the commit lacks"),
        ("pkg/self", "../pkg", "holds it"),
        ("loop", "loop", "in a circle"),
        ("through", "nothing/../model.py", "'nothing', which is not a folder"),
        ("file", "model.py/../model.py", "'model.py', which is not a folder"),
    ],
)
def test_links_that_cannot_be_copied_are_refused_with_what_to_exclude(repo, path, target, said):
    link(repo, path, target)
    with pytest.raises(ConfigError, match=said) as refused:
        pack(repo)
    assert f'project.exclude = ["{path}"]' in str(refused.value)
    assert "model.py" in contents(pack(repo, exclude=("docs/**", path)))


def test_links_that_multiply_each_other_are_refused_in_time():
    targets = {f"d{n}/{side}": f"../d{n + 1}" for n in range(40) for side in ("a", "b")}
    bomb = SymlinkResolver(targets=targets, files=frozenset({"d40/end"}), wanted=frozenset({"d0/a"}))
    with pytest.raises(ConfigError, match="copies"):
        list(bomb.copies())


part = st.sampled_from(["a", "b", "..", ".", "c"])
paths = st.lists(part, min_size=1, max_size=4).map("/".join)
names = st.sampled_from(["a/x", "a/y", "b/x", "b/c/x", "c", "l1", "a/l2", "b/l3"])


@given(targets=st.dictionaries(names, paths, max_size=4), files=st.frozensets(names, max_size=5))
def test_copies_are_what_the_file_system_sees_through_the_links(targets, files, tmp_path_factory):
    files = {path for path in files if path not in targets}
    root = tmp_path_factory.mktemp("tree") / "root"
    for path in (*files, *targets):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
    for path in files:
        (root / path).write_text(path)
    for path, target in targets.items():
        (root / path).symlink_to(target)
    for wanted in targets:
        links = SymlinkResolver(targets=targets, files=frozenset(files), wanted=frozenset({wanted}))
        try:
            copies = dict(links.copies())
        except ConfigError:
            continue
        for place, source in copies.items():
            assert (root / place).read_text() == source
        seen = root / wanted
        walked = {str(top) + "/" + name for top, _, found in os.walk(seen, followlinks=True) for name in found}
        assert {str(root / place) for place in copies} == (walked if seen.is_dir() else {str(seen)})


def test_a_submodule_with_content_is_refused_and_an_empty_one_is_not(repo, tmp_path):
    other = repositories.make_repository(tmp_path / "other", {"a.py": "a"})
    commit = repositories.git(other, "rev-parse", "HEAD")
    repositories.git(repo.root, "update-index", "--add", "--cacheinfo", f"160000,{commit},third/party")
    repositories.git(repo.root, "commit", "--quiet", "-m", "submodule")
    packed = pack(repo)
    assert "model.py" in contents(packed)
    assert (packed.left_out.paths, packed.left_out.keys) == (("third/party",), ("project.include",))
    (repo.root / "third/party").mkdir(parents=True)
    (repo.root / "third/party/a.py").write_text("a")
    with pytest.raises(ConfigError, match="third/party is a submodule"):
        pack(repo)
    assert "model.py" in contents(pack(repo, exclude=("docs/**", "third/**")))


@pytest.fixture
def clone(repo, tmp_path):
    """Of a repository with a submodule that has one of its own, all checked out."""
    allow = ("-c", "protocol.file.allow=always")
    deep = repositories.make_repository(tmp_path / "deep", {"d.py": "deep"})
    other = repositories.make_repository(tmp_path / "other: of many", {"a.py": "a", "tests/t.py": "t"})
    for holder, path, source in ((other, "in/deep", deep), (repo.root, "third/party", other)):
        repositories.git(holder, *allow, "submodule", "--quiet", "add", str(source), path)
        repositories.git(holder, "commit", "--quiet", "-m", "submodule")
    repositories.git(repo.root, *allow, "submodule", "--quiet", "update", "--init", "--recursive")
    return repo


def test_a_submodule_that_is_named_has_its_files_at_the_commit_that_is_pinned(clone, tmp_path):
    pinned = clone.root / "third/party"
    (pinned / "a.py").write_text("newer")
    repositories.git(pinned, "commit", "--quiet", "-am", "newer")
    layer = code_layer.pack(
        clone, clone.tree("HEAD"), project(include=("**", "third/party/**"), exclude=("**/tests/**", "**/deep"))
    )
    found = contents(layer)
    assert (found["third/party/a.py"], "third/party/tests/t.py" in found, layer.edited) == ("a", False, ())
    assert "third/party/in/deep/d.py" not in found
    odd = tmp_path / 'a: "b"'
    repositories.git(clone.root, "-c", "protocol.file.allow=always", "clone", "--quiet", "--recursive", ".", str(odd))
    deep = contents(pack(Repository.at(odd), include=("*.py", "third/party/in/deep/*.py")))
    assert deep == {"model.py": "a", "third/party/in/deep/d.py": "deep"}


def test_a_line_in_a_folder_names_submodules_next_to_it(clone):
    repositories.commit(clone.root, {"service/run.py": "run"})
    line = Repository.at(clone.root / "service")
    assert contents(pack(line, include=("**", "../third/party/a.py"))) == {
        "service/run.py": "run", "third/party/a.py": "a",
    }  # fmt: skip


def test_a_link_in_place_of_a_submodule_leads_to_no_other_repository(clone, tmp_path):
    """A commit may pin what it knows of another repository, and another one have put the link there."""
    other = repositories.make_repository(tmp_path / "private" / "party", {"a.py": "secret"})
    commit = repositories.git(other, "rev-parse", "HEAD")
    repositories.git(clone.root, "update-index", "--add", "--cacheinfo", f"160000,{commit},out/party")
    repositories.git(clone.root, "commit", "--quiet", "-m", "pins another")
    (clone.root / "out").symlink_to(other.parent)
    with pytest.raises(ConfigError, match="of submodule out/party, found no clone of it there"):
        pack(clone, include=("out/party/**",))


def test_changes_on_disk_of_a_submodule_are_named(clone):
    named = project(include=("**", "third/party/**"), exclude=("third/party/in/**",))
    (clone.root / "third/party/new.py").write_text("1")
    assert code_layer.pack(clone, clone.tree("HEAD"), named).edited == ()
    (clone.root / "third/party/a.py").write_text("edited")
    layer = code_layer.pack(clone, clone.tree("HEAD"), named)
    assert (contents(layer)["third/party/a.py"], layer.edited) == ("a", ("third/party",))


def test_a_submodule_that_is_named_and_not_there_is_never_left_out(clone, tmp_path):
    bare = tmp_path / "without"
    repositories.git(clone.root, "clone", "--quiet", str(clone.root), str(bare))
    with pytest.raises(ConfigError, match="of submodule third/party, found no clone of it there"):
        pack(Repository.at(bare), include=("third/party/a.py",))
    (bare / "third/party").rmdir()
    repositories.make_repository(bare / "third/party", {"a.py": "another"})
    with pytest.raises(ConfigError, match="found a clone without it"):
        pack(Repository.at(bare), include=("third/party/a.py",))


def test_the_layer_unpacks_with_its_executables(repo, tmp_path):
    (repo.root / "run.sh").write_text("#!/bin/sh\n")
    (repo.root / "run.sh").chmod(0o755)
    repositories.commit(repo.root, {})
    assert unpack(pack(repo).data, tmp_path / "code") == 5
    assert (tmp_path / "code" / "run.sh").stat().st_mode & 0o111
    assert (tmp_path / "code" / "pkg" / "b.py").read_text() == "bb"


def test_nothing_left_is_said_so(repo):
    with pytest.raises(ConfigError, match="select no file"):
        pack(repo, include=("nothing/**",))


def test_what_is_too_large_names_the_heaviest_and_the_key_that_leaves_it_out(repo, monkeypatch):
    repositories.commit(repo.root, {f"docs/images/{n}.png": "x" * 100 for n in range(5)} | {"notes.md": "n" * 300})
    monkeypatch.setattr(layer, "MAX_BYTES", 400)
    with pytest.raises(ConfigError) as refused:
        pack(repo, exclude=("*.txt",))
    assert "at most 400 B, found 805 B: docs/images/** has 500 B; what" in str(refused.value)
    assert str(refused.value).endswith('project.exclude = ["*.txt", "docs/images/**"]')
    assert "notes.md" in contents(pack(repo, exclude=("*.txt", "docs/images/**")))
    monkeypatch.setattr(layer, "MAX_BYTES", 4)
    with pytest.raises(ConfigError, match=r'project.exclude = \["docs/images/\*\*", "notes.md", "pkg/b.py"\]'):
        pack(repo)
    monkeypatch.setattr(layer, "MAX_BYTES", 4000)
    monkeypatch.setattr(layer, "MAX_FILES", 6)
    with pytest.raises(ConfigError, match=r"at most 6 files, found 10 files: docs/images/\*\* has 5 files"):
        pack(repo)


def test_the_heaviest_of_a_line_in_a_folder_are_named_as_the_line_names_them(repo, monkeypatch):
    repositories.commit(repo.root, {"service/run.py": "run", "service/docs/big.bin": "b" * 500, "common/a.py": "a"})
    monkeypatch.setattr(layer, "MAX_BYTES", 100)
    with pytest.raises(ConfigError, match=r'docs/big.bin has 500 B; .* project.exclude = \["docs/big.bin"\]'):
        pack(Repository.at(repo.root / "service"), include=("**", "../common/**"))


def test_names_as_people_track_them_are_in_the_layer(repo, tmp_path):
    names = ("pkg/B.py", "pkg/epoch=3-step=100.yaml", "a b+c@d/\u00e9.txt", "README.MD", "readme.md", ".github/x")
    repositories.commit(repo.root, dict.fromkeys(names, "x"))
    unpack(pack(repo, exclude=()).data, tmp_path / "code")
    assert all((tmp_path / "code" / name).read_text() == "x" for name in names)


@pytest.mark.row("P2")
@pytest.mark.parametrize("name", [".GIT", "git~1", ".git ", ".g\u200cit"])
def test_a_git_folder_that_somebody_wrote_into_a_tree_is_refused_with_its_path(repo, name):
    blob = repositories.git(repo.root, "hash-object", "-w", "line.toml")
    inner = made(repo.root, f"100644 blob {blob}\tconfig")
    rows = repositories.git(repo.root, "ls-tree", "HEAD").splitlines()
    tree = made(repo.root, "\n".join([*rows, f"040000 tree {inner}\t{name}"]))
    commit = repositories.git(repo.root, "commit-tree", "-m", "hostile", tree)
    with pytest.raises(ConfigError, match=r"outside of git folders, found .*leave it out by project\.exclude"):
        code_layer.pack(repo, tree, project(), commit=commit)


def made(folder, rows):
    done = subprocess.run(["git", "mktree"], cwd=folder, input=rows.encode(), capture_output=True, check=True)
    return done.stdout.decode().strip()
