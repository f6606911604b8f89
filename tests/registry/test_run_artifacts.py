"""What a run left, fetched: verified, never over another file, never half."""

import hashlib

import pytest

from gangline.errors import IntegrityError, StorageError, UsageError
from gangline.registry import run_artifacts
from gangline.registry.run_artifacts import RunArtifact, fetch_artifacts, select_artifacts
from gangline.storage.objects import paths
from gangline.storage.open import open_store

DATA = bytes(range(256)) * 100
GIT_PATHS = [
    ".git/config.worktree", "out/.git/config", ".GIT/hooks/post-checkout", ".git./config", ".git /config", ".git. ./x",
    "git~1/config", "GIT~1/x", ".g\u200cit/config", ".git\ufeff/x", ".git:stream", ".git::$INDEX_ALLOCATION/x", ".git",
]  # fmt: skip
"""Spellings that some file system takes for a git folder: case, NTFS, HFS+."""


@pytest.fixture
def store(tmp_path):
    made = open_store(f"file:{tmp_path / 'store'}")
    made.put("runs/x", DATA)
    return made


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(run_artifacts, "_PIECE_BYTES", 1000)


def item(path="out/model.pt", key="runs/x", data=DATA):
    digest = hashlib.sha256(data).hexdigest()
    return RunArtifact(kind="output", path=path, key=key, size_bytes=len(data), sha256=digest)


def get(store, folder, *items, overwrite=False):
    return [path for _, path in fetch_artifacts(store, items, folder, overwrite=overwrite)]


def test_a_file_arrives_under_its_path_and_a_second_time_stays(store, tmp_path):
    (path,) = get(store, tmp_path / "to", item())
    assert path.read_bytes() == DATA
    before = path.stat().st_mtime_ns
    get(store, tmp_path / "to", item())
    assert path.stat().st_mtime_ns == before


def test_another_file_is_not_overwritten_unasked_and_nothing_is_fetched(store, tmp_path):
    (tmp_path / "b").write_text("mine")
    with pytest.raises(UsageError, match="--overwrite"):
        get(store, tmp_path, item("a"), item("b"))
    assert not (tmp_path / "a").exists()
    get(store, tmp_path, item("a"), item("b"), overwrite=True)
    assert (tmp_path / "b").read_bytes() == DATA


def test_content_with_another_digest_is_refused_and_nothing_of_it_stays(store, tmp_path):
    store.put("runs/x", DATA[:-1] + b"?")
    with pytest.raises(IntegrityError, match="wanted digest"):
        get(store, tmp_path / "to", item())
    assert [each for each in (tmp_path / "to").rglob("*") if each.is_file()] == []


def test_a_fetch_that_was_broken_off_continues_and_a_wrong_part_is_begun_again(store, tmp_path):
    class Breaks:
        url = store.url
        left = 5

        def get(self, *arguments):
            self.left -= 1
            if self.left < 0:
                raise StorageError("away")
            return store.get(*arguments)

    with pytest.raises(StorageError):
        get(Breaks(), tmp_path, item())
    assert not (tmp_path / "out/model.pt").exists()
    (part,) = (tmp_path / "out").iterdir()
    assert part.stat().st_size == 5000
    again = Breaks()
    again.left = 21
    get(again, tmp_path, item())
    part.write_bytes(b"?" * 5000)
    (tmp_path / "out/model.pt").unlink()
    get(store, tmp_path, item())
    assert (tmp_path / "out/model.pt").read_bytes() == DATA
    assert not part.exists()


def test_a_pattern_that_names_nothing_or_one_path_twice_is_an_error(store):
    with pytest.raises(UsageError, match=r"found none; files of the run: out/model.pt"):
        select_artifacts([item()], "*.onnx")
    with pytest.raises(UsageError, match="2 times"):
        select_artifacts([item(), item()], "out/**")


PART = f".{hashlib.sha256(DATA).hexdigest()[:16]}.part"


@pytest.fixture
def checkout(tmp_path):
    """A checkout with a committed link to a folder outside of it."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "model.pt").write_text("mine")
    (tmp_path / "checkout" / "deep").mkdir(parents=True)
    (tmp_path / "checkout" / "out").symlink_to(tmp_path / "outside")
    (tmp_path / "checkout" / "deep" / "out").symlink_to("../../outside")
    return tmp_path / "checkout"


@pytest.mark.row("P2")
@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("path", ["out/model.pt", "out/a/b", "deep/out/new.pt"])
def test_no_link_on_the_way_is_followed_and_nothing_is_fetched(store, checkout, path, overwrite):
    with pytest.raises(UsageError, match="out is a link or a file, wanted a folder: nothing is written through links"):
        get(store, checkout, item("first"), item(path), overwrite=overwrite)
    assert [each.read_text() for each in (checkout.parent / "outside").iterdir()] == ["mine"]
    assert not (checkout / "first").exists()


@pytest.mark.row("P2")
def test_a_link_in_the_place_of_the_file_is_replaced_and_not_followed(store, checkout):
    target = checkout.parent / "outside" / "model.pt"
    (checkout / "model.pt").symlink_to(target)
    with pytest.raises(UsageError, match="--overwrite"):
        get(store, checkout, item("model.pt"))
    get(store, checkout, item("model.pt"), overwrite=True)
    assert not (checkout / "model.pt").is_symlink()
    assert (checkout / "model.pt").read_bytes() == DATA
    assert target.read_text() == "mine"


@pytest.mark.row("P2")
def test_a_link_with_the_name_of_the_partial_file_is_not_followed(store, checkout):
    (checkout / PART).symlink_to(checkout.parent / "outside" / "made")
    with pytest.raises(StorageError):
        get(store, checkout, item("model.pt"))
    assert not (checkout.parent / "outside" / "made").exists()


@pytest.mark.row("P2")
def test_a_link_that_appears_between_the_look_and_the_download_is_not_followed(store, checkout):
    fetched = fetch_artifacts(store, [item("a/x"), item("b/x")], checkout, overwrite=False)
    next(fetched)
    (checkout / "b").symlink_to(checkout.parent / "outside")
    with pytest.raises(UsageError, match="b is a link"):
        next(fetched)
    assert not (checkout.parent / "outside" / "x").exists()


def test_a_target_that_is_a_link_itself_is_the_users_choice(store, checkout):
    get(store, checkout / "out", item("new.pt"))
    assert (checkout.parent / "outside" / "new.pt").read_bytes() == DATA


@pytest.mark.row("P2")
@pytest.mark.parametrize("path", GIT_PATHS)
def test_no_spelling_of_a_git_folder_is_fetched(store, tmp_path, path):
    with pytest.raises(IntegrityError, match="outside of git folders"):
        get(store, tmp_path / "to", item("a"), item(path))
    assert not (tmp_path / "to").exists()
    with pytest.raises(UsageError, match="git obeys what is in one"):
        select_artifacts([item(path)], "**")
    assert [each.path for each in select_artifacts([item(path), item("a")], "**")] == ["a"]


@pytest.mark.parametrize("path", ["out/epoch=3-step=100.ckpt", "out/a b+c@d é.bin", ".gitignore", "a.git/x", "git/x"])
def test_names_that_programs_write_are_fetched_as_they_are(store, tmp_path, path):
    get(store, tmp_path, item(path))
    assert (tmp_path / path).read_bytes() == DATA


def test_names_that_differ_in_case_arrive_where_the_file_system_keeps_case(store, tmp_path):
    get(store, tmp_path, item("out/Model.pt"), item("out/model.pt"), item("Out/model.pt"))
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == ["Model.pt", "model.pt"]


def test_where_it_does_not_nothing_is_fetched_and_both_are_named(store, tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "_is_one", lambda one, other, folder: True)  # as on a Mac
    with pytest.raises(UsageError, match=r"out/Model\.pt and out/model\.pt are one name on the file system of"):
        get(store, tmp_path, item("out/Model.pt"), item("out/model.pt"))
    assert list(tmp_path.glob("out")) == []
