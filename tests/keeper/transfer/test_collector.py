"""What a program wrote on its way to the store, against a folder store: names, sizes, changes, links, limits."""

import hashlib
import os
import time

import pytest

from gangline.errors import StorageError
from gangline.keeper.transfer import collector
from gangline.keeper.transfer.collector import Collector
from gangline.spec.program_files import OutputsRequest
from gangline.storage.objects import code_layer
from gangline.storage.objects.blobs import put_blob
from gangline.storage.open import open_store

PREFIX = "runs/p/c/r/gang"


@pytest.fixture
def store(tmp_path):
    return open_store(f"file:{tmp_path / 'store'}")


@pytest.fixture
def code(tmp_path, store):
    """The folder that ranks started in, with a file of the commit."""
    folder = tmp_path / "code"
    (folder / "out").mkdir(parents=True)
    (folder / "out/committed.txt").write_text("of the commit")
    (folder / "metrics.json").write_text("{}")
    old = time.time() - 60
    for name in ("out/committed.txt", "metrics.json"):
        os.utime(folder / name, (old, old))
    return folder


def gather(store, code, globs=("out/**",), *, ranks_began=0.0, tracked=None, **asked):
    files = [code_layer.LayerFile("out/committed.txt", b"of the commit"), code_layer.LayerFile("metrics.json", b"{}")]
    key = put_blob(store, code_layer.pack(files))
    wanted = {"globs": globs, "code": key, "most_files": 10, "most_bytes": 1000} | asked
    return Collector(
        store=store, request=OutputsRequest(**wanted), folder=code, prefix=PREFIX, gang="g", began=time.time() - 30,
        ranks_began=ranks_began, tracked=tracked or {},
    ).collect()  # fmt: skip


def test_files_are_stored_by_content_and_listed_by_path(store, code):
    (code / "out/deep").mkdir()
    (code / "out/deep/model.pt").write_bytes(b"weights")
    (code / "other.txt").write_text("nobody asked")
    found = gather(store, code)
    assert [file.path for file in found.files] == ["out/deep/model.pt"]
    digest = hashlib.sha256(b"weights").hexdigest()
    assert store.get(f"{PREFIX}/outputs/{digest}").data == b"weights"


def test_a_file_of_the_commit_is_not_an_output_unless_it_was_written_again(store, code):
    assert gather(store, code).files == ()
    (code / "out/committed.txt").write_text("of the commit")
    assert [file.path for file in gather(store, code).files] == ["out/committed.txt"]


def test_a_file_that_was_placed_is_not_an_output_unless_it_was_written_again(store, code):
    tracked = {"out/data.csv": (4, hashlib.sha256(b"rows").hexdigest())}
    (code / "out/data.csv").write_bytes(b"rows")
    old = time.time() - 60
    os.utime(code / "out/data.csv", (old, old))
    assert gather(store, code, tracked=tracked).files == ()
    assert [each.path for each in gather(store, code).files] == ["out/data.csv"]
    (code / "out/data.csv").write_bytes(b"swor")
    os.utime(code / "out/data.csv", (old, old))
    assert [each.path for each in gather(store, code, tracked=tracked).files] == ["out/data.csv"], "other bytes"
    (code / "out/data.csv").write_bytes(b"rows")
    assert [each.path for each in gather(store, code, tracked=tracked).files] == ["out/data.csv"], "a new file"


def test_a_metrics_file_of_the_commit_is_not_one_that_the_program_wrote(store, code):
    assert gather(store, code, (), metrics="metrics.json").metrics is None
    (code / "metrics.json").write_text("{}")
    assert gather(store, code, (), metrics="metrics.json").metrics.size_bytes == 2


def test_a_metrics_file_of_ranks_that_were_killed_is_not_one_of_those_that_ended(store, code):
    (code / "metrics.json").write_text("{ }")
    os.utime(code / "metrics.json", (1, 1))  # as a copy that keeps the time has it
    assert gather(store, code, (), metrics="metrics.json", ranks_began=time.time() - 10).metrics.size_bytes == 3
    found = gather(store, code, (), metrics="metrics.json", ranks_began=time.time() + 10)
    assert found.metrics is None
    assert [each.reason for each in found.left_out] == ["the program wrote it before its last restart, and not again"]


def test_a_metrics_file_that_is_too_large_is_listed_with_that_reason(store, code, monkeypatch):
    (code / "metrics.json").write_text("[0, 0]")
    monkeypatch.setattr(collector, "MOST_METRICS_BYTES", 5)
    found = gather(store, code, (), metrics="metrics.json")
    assert found.metrics is None
    assert [each.reason for each in found.left_out] == ["wanted at most 5 B of metrics, found 6 B"]


def test_the_ranks_that_ran_last_began_when_the_journal_says(tmp_path):
    journal = tmp_path / "keeper-0.jsonl"
    assert collector.ranks_began(journal) == 0
    rows = [("generation_started", 0, 10), ("rank_started", 0, 11), ("rank_started", 1, 12), ("rank_exited", 1, 20)]
    rows += [("generation_started", 0, 30), ("rank_started", 1, 31)]
    lines = [f'{{"event":"{name}","rank":{rank},"time":"1970-01-01T00:00:{at}.500+00:00"}}' for name, rank, at in rows]
    journal.write_text("\n".join([*lines, '{"event":']))
    assert collector.ranks_began(journal) == 10.5, "rank 0 is still the one of then"
    journal.write_text("\n".join([*lines, lines[-1].replace('"rank":1', '"rank":0')]))
    assert collector.ranks_began(journal) == 30.5


def test_more_than_the_site_allows_is_named_and_nothing_of_it_is_kept(store, code):
    (code / "out/small.txt").write_text("small")
    with (code / "out/huge.pt").open("wb") as file:
        file.truncate(50 * 10**9)
    began = time.monotonic()
    found = gather(store, code, most_bytes=20 * 10**9)
    assert time.monotonic() - began < 5
    assert found.files == ()
    assert "found 2 of 50 GB, the largest out/huge.pt" in found.refused
    assert list(store.list(f"{PREFIX}/")) == []


def test_too_many_files_are_refused(store, code):
    for number in range(11):
        (code / f"out/{number}").write_text("x")
    assert "wanted at most 10 files" in gather(store, code).refused


def test_links_pipes_and_names_that_are_no_paths_are_left_out_and_named(store, code, tmp_path):
    (tmp_path / "secret").write_text("of another")
    (code / "out/link").symlink_to(tmp_path / "secret")
    (code / "out/folder").symlink_to(tmp_path)
    os.mkfifo(code / "out/pipe")
    (code / "out/bad\nname").write_text("x")
    (code / "out/good").write_text("x")
    found = gather(store, code)
    assert [file.path for file in found.files] == ["out/good"]
    assert {(each.path, each.is_lost) for each in found.left_out} == {
        ("out/link", False), ("out/folder", False), ("out/pipe", False), ("out/bad\nname", True)
    }  # fmt: skip


def test_a_file_that_changes_while_it_is_read_is_read_again(store, code, monkeypatch):
    path = code / "out/model.pt"
    path.write_bytes(b"first")
    upload, seen = collector.put_blocks, []

    def changes_once(store, key, blocks):
        if not seen:
            path.write_bytes(b"second")
        seen.append(key)
        upload(store, key, blocks)

    monkeypatch.setattr(collector, "put_blocks", changes_once)
    (file,) = gather(store, code).files
    assert (file.sha256, len(seen)) == (hashlib.sha256(b"second").hexdigest(), 2)


def test_a_file_that_never_stays_is_named_and_nothing_of_it_is_in_the_store(store, code, monkeypatch):
    path, upload, count = code / "out/model.pt", collector.put_blocks, iter(range(100))
    path.write_bytes(b"first")

    def changes(store, key, blocks):
        path.write_bytes(f"number {next(count)}".encode())
        upload(store, key, blocks)

    monkeypatch.setattr(collector, "put_blocks", changes)
    found = gather(store, code)
    assert found.files == ()
    assert [(each.path, each.reason) for each in found.left_out] == [
        ("out/model.pt", "it changed while it was read, 3 times")
    ]
    assert list(store.list(f"{PREFIX}/outputs/")) == []


def test_equal_content_is_stored_once(store, code, monkeypatch):
    sent, upload = [], collector.put_blocks
    monkeypatch.setattr(collector, "put_blocks", lambda *each: (sent.append(each[1]), upload(*each)))
    for name in ("a", "b"):
        (code / f"out/{name}").write_text("same")
    assert len(gather(store, code).files) == 2
    assert len(sent) == 1


def test_a_store_that_stays_away_is_an_error_and_no_list(store, code, monkeypatch):
    (code / "out/model.pt").write_bytes(b"weights")
    monkeypatch.setattr(collector, "RETRY_SECONDS", 0.0)

    def away(*_):
        raise StorageError("away")

    monkeypatch.setattr(collector, "put_blocks", away)
    with pytest.raises(StorageError, match="away"):
        gather(store, code)


@pytest.mark.row("P2")
def test_no_git_folder_is_collected_in_any_spelling_and_the_list_says_so(store, code):
    folders = (".git", "out/.GIT", ".git.", "git~1", ".g\u200cit")
    for folder in folders:
        (code / folder / "hooks").mkdir(parents=True)
        (code / folder / "config.worktree").write_text("[core]")
        (code / folder / "hooks" / "post-checkout").write_text("#!/bin/sh")
    (code / "out" / "sub").mkdir()
    (code / "out" / "sub" / ".git").write_text("gitdir: /elsewhere")
    (code / "out" / "epoch=3-step=100.ckpt").write_text("weights")
    found = gather(store, code, ("**",))
    assert [file.path for file in found.files] == ["out/epoch=3-step=100.ckpt"]
    assert {each.path for each in found.left_out} == {*folders, "out/sub/.git"}
    assert {(each.reason, each.is_lost) for each in found.left_out} == {("git's own files are never collected", False)}


def test_names_that_programs_write_are_collected_as_they_are(store, code):
    names = ["out/Model.pt", "out/a b+c@d \u00e9.bin", "out/epoch=3-step=100.ckpt", "out/model.pt", "out/x.git/y"]
    for name in names:
        (code / name).parent.mkdir(exist_ok=True)
        (code / name).write_text(name)
    assert sorted(file.path for file in gather(store, code).files) == sorted(names)
