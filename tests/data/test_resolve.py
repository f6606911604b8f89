"""Text of a line: what globs find in a commit, in packages and in the store, and what they may not."""

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.data.resolve import ReadableFile, data_source, installed_package, resolve_text
from gangline.errors import ConfigError, IntegrityError
from gangline.spec.config.data_keys import DataAccess
from gangline.spec.data_source import DataFile
from gangline.storage.folder.store import FolderStore

OWN = DataAccess(prefixes=("data/", "corpora/"), project="demo")


def tree(**files: str):
    """A commit: path (with __ for /) to what is there."""
    return {name.replace("__", "/"): ReadableFile(len(text), text.encode) for name, text in files.items()}


def resolve(patterns, *, tracked=None, access=OWN, **options):
    return resolve_text(patterns, tracked=tracked or {}, access=access, **options)


COMMIT = tree(src__a="one", src__deep__b="two", README="three")


@pytest.fixture
def store(tmp_path):
    return FolderStore(tmp_path / "store")


def test_repo_glob_finds_files_of_the_commit_sorted_and_by_digest():
    files = resolve(["repo:src/**"], tracked=COMMIT)
    assert [(file.path, file.data) for file in files] == [("repo/src/a", b"one"), ("repo/src/deep/b", b"two")]
    assert files[0].entry == DataFile(path="repo/src/a", key=f"blobs/sha256/{sha256(b'one').hexdigest()}", size_bytes=3)


def test_overlapping_globs_name_a_file_once():
    once = resolve(["repo:src/**", "repo:**"], tracked=COMMIT)
    assert [file.path for file in once] == ["repo/README", "repo/src/a", "repo/src/deep/b"]


def test_package_glob_finds_files_of_an_installed_package():
    files = resolve(["package:gangline/spec/*.py"])
    assert "package/gangline/spec/globs.py" in [file.path for file in files]
    assert installed_package("no_such_package_here") is None
    assert installed_package("__main__") is None


def test_asking_for_a_package_in_a_package_imports_neither(tmp_path, monkeypatch):
    """Python would import the outer one in the driver, to find the inner one."""
    (tmp_path / "outer_evil").mkdir()
    marker = tmp_path / "ran"
    text = f"import pathlib; pathlib.Path({str(marker)!r}).touch()"
    (tmp_path / "outer_evil" / "__init__.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert installed_package("outer_evil.inner") is None
    assert installed_package("outer_evil") == tmp_path / "outer_evil"
    assert not marker.exists()


def test_compiled_files_of_a_package_are_no_text(tmp_path):
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_bytes(b"x")
    (tmp_path / "a.py").write_text("pass")
    files = resolve(["package:thing/**"], package_root={"thing": tmp_path}.get)
    assert [file.path for file in files] == ["package/thing/a.py"]


def test_store_key_is_read_from_the_store(store):
    store.put("corpora/a.txt", b"text")
    files = resolve(["corpora/a.txt"], store=store)
    assert [(file.path, file.data) for file in files] == [("store/corpora/a.txt", b"text")]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("repo:lib/**", "none among 3 of the commit"),
        ("package:gangline/**/*.rs", "none in the package"),
        ("package:no_such_package_here/**", "found no package no_such_package_here"),
        ("repo:../secrets/*", "stays inside"),
        ("repo:/etc/passwd", "stays inside"),
        ("ftp:a", "repo: or package:"),
        ("corpora/b.txt", "upload it first"),
    ],
)
def test_pattern_that_finds_nothing_or_leaves_its_root_is_refused(pattern, message, store):
    with pytest.raises(ConfigError, match=message):
        resolve([pattern], tracked=COMMIT, store=store)


def test_link_of_the_commit_is_refused_only_when_a_glob_meets_it():
    linked = COMMIT | {"src/link": None}
    assert len(resolve(["repo:README"], tracked=linked)) == 1
    with pytest.raises(ConfigError, match="src/link, a link or submodule"):
        resolve(["repo:src/*"], tracked=linked)


def test_hostile_path_is_escaped_in_the_message():
    with pytest.raises(ConfigError) as caught:
        resolve(["repo:*"], tracked={"\x1b[31mred": None})
    assert str(caught.value).isprintable()


def test_empty_files_alone_are_no_text():
    with pytest.raises(ConfigError, match="1 empty files"):
        resolve(["repo:a"], tracked=tree(a=""))


def test_too_much_text_points_to_shards_before_any_of_it_is_read(monkeypatch, tmp_path, store):
    def read():
        raise AssertionError("it was read")

    store.put("data/a", b"123456")
    monkeypatch.setattr(store, "get", read)
    (tmp_path / "a.py").write_text("123456")
    large = {"a": ReadableFile(6, read)}
    monkeypatch.setattr("gangline.data.resolve.MOST_BYTES", 5)
    for pattern in ("repo:**", "data/a", "package:thing/**"):
        with pytest.raises(ConfigError, match=r"use data\.shards"):
            resolve([pattern], tracked=large, store=store, package_root={"thing": tmp_path}.get)


def test_too_many_files_point_to_shards(monkeypatch):
    monkeypatch.setattr("gangline.data.resolve.MOST_FILES", 2)
    with pytest.raises(ConfigError, match=r"at most 2 files, found 3; use data\.shards"):
        resolve(["repo:src/**", "repo:README"], tracked=COMMIT)


def test_an_object_that_grew_since_its_size_was_known_is_not_read(store, monkeypatch):
    store.put("data/a", b"1")
    known = store.head("data/a")
    store.put("data/a", b"1" * 1000)
    monkeypatch.setattr(store, "head", lambda key: known)
    with pytest.raises(IntegrityError, match="wanted at most 1 B"):
        resolve(["data/a"], store=store)


def test_demanded_digest_that_differs_is_refused():
    files = [file.entry for file in resolve(["repo:**"], tracked=COMMIT)]
    source = data_source(files, holdout=0.2)
    assert data_source(files, holdout=0.2, demanded=source.digest) == source
    with pytest.raises(ConfigError, match=f"wanted {'a' * 64}, found {source.digest}"):
        data_source(files, holdout=0.2, demanded="a" * 64)


contents = st.dictionaries(st.text("abc/", min_size=1, max_size=5), st.binary(min_size=1, max_size=5), min_size=1)


@given(files=contents)
def test_digest_depends_on_content_and_paths_alone(files):
    entries = [
        DataFile(path=path, key=f"blobs/sha256/{sha256(data).hexdigest()}", size_bytes=len(data))
        for path, data in files.items()
    ]
    source = data_source(entries, holdout=0.1)
    assert source == data_source(entries[::-1], holdout=0.1)
    renamed = [DataFile(path=f"{each.path}x", key=each.key, size_bytes=each.size_bytes) for each in entries]
    assert data_source(renamed, holdout=0.1).digest != source.digest
